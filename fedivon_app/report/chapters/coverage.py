"""The chapter on the calibration of predicted numbers: how often intervals hold the truth."""

from __future__ import annotations

import numpy as np

from fedivon_app.report import html, plots
from fedivon_app.report.html import Chapter
from fedivon_app.report.results import number
from fedivon_app.report.view import PageView, Predictor

NOTE = (
    "How often the central interval of a prediction holds the true number, against how often it "
    "should. On the diagonal a model knows how wrong it may be; below it, its intervals are too "
    "narrow, and above it too wide."
)


def chapter(view: PageView) -> Chapter | None:
    """Draw the share of numbers inside of their intervals against the level of these."""
    lines = [line for one in view.assessed if (line := _line(one))]
    if not lines:
        return None
    keys = [one.key for one in view.assessed if _line(one)]
    figure = plots.curves(
        title="Coverage of intervals", x="level", y="coverage", lines=lines, diagonal=True
    )
    picture = view.pictures(
        name="coverage", figure=figure, title="Coverage of intervals by level", legend=keys
    )
    body = html.paragraph(NOTE) + html.legend(keys) + html.grid([picture])
    return Chapter("coverage", "Calibration", body)


def _line(predictor: Predictor) -> plots.Line | None:
    """Return the mean coverage over the runs that were assessed at the same levels."""
    assessments = [run.assessment(predictor.way) for run in predictor.results]
    found = [c for one in assessments if (c := one.get("coverage"))]
    found = [one for one in found if one["levels"] == found[0]["levels"]]
    if not found:
        return None
    return plots.Line.mean(
        predictor.key,
        np.array(found[0]["levels"]),
        [[number(value) for value in one["covered"]] for one in found],
    )
