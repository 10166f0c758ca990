"""The chapters of a page, one file each, in the order in which they stand.

A chapter is a function that takes the page's view and returns the chapter, or None where the runs
have nothing for it. One line in CHAPTERS adds one.
"""

from __future__ import annotations

from collections.abc import Callable

from fedivon_app.report.chapters import (
    attacks,
    by_class,
    calibration,
    clients,
    coverage,
    crossing,
    detection,
    learning,
    personal,
    precision,
    privacy,
    retention,
    runs,
    scores,
    settings,
    training,
    unassessed,
)
from fedivon_app.report.html import Chapter
from fedivon_app.report.view import PageView

CHAPTERS: tuple[Callable[[PageView], Chapter | None], ...] = (
    scores.chapter,
    learning.chapter,
    calibration.chapter,
    coverage.chapter,
    by_class.chapter,
    retention.chapter,
    detection.chapter,
    unassessed.chapter,
    crossing.chapter,
    personal.chapter,
    clients.chapter,
    attacks.chapter,
    training.chapter,
    precision.chapter,
    privacy.chapter,
    runs.chapter,
    settings.chapter,
)


def written_chapters(view: PageView) -> list[Chapter]:
    """Return all chapters for which the page's runs have something."""
    written = (write(view) for write in CHAPTERS)
    return [chapter for chapter in written if chapter is not None]
