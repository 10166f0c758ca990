"""The chapter that stands in place of those on uncertainty where no run's was assessed."""

from __future__ import annotations

from fedivon_app.report import html
from fedivon_app.report.html import Chapter
from fedivon_app.report.view import PageView

WHY = (
    "No uncertainty.json is there; fedivon uncertainty RUN writes it, for a run that kept a "
    "checkpoint."
)


def chapter(view: PageView) -> Chapter | None:
    """Say how to get the chapters on uncertainty; None where they are there."""
    if view.assessed:
        return None
    return Chapter("uncertainty", "Uncertainty", html.paragraph(WHY))
