"""The chapter on retention: how accurate a model is where it is most certain."""

from __future__ import annotations

import numpy as np

from fedivon_app.report import html, plots
from fedivon_app.report.axes import POINTS
from fedivon_app.report.html import Chapter
from fedivon_app.report.results import UNCERTAINTIES, number
from fedivon_app.report.view import PageView, Predictor, bands_note, keys_of

NOTE = (
    "Accuracy on the most certain part of the test set: the steeper it rises to the left, the "
    "better the uncertainty tells which predictions are wrong."
)


def chapter(view: PageView) -> Chapter | None:
    """Draw the accuracy of the most certain examples against their share."""
    keys = keys_of(view.assessed)
    drawn = []
    for kind, word in UNCERTAINTIES.items():
        lines = [line for one in view.assessed if (line := _retained(one, kind))]
        if lines:
            figure = plots.curves(
                title=f"By {word.lower()}",
                x="% of the examples kept",
                y="accuracy %",
                lines=lines,
                least=POINTS,
            )
            drawn.append(
                view.pictures(
                    name=f"retention-{kind}",
                    figure=figure,
                    title=f"Accuracy of the most certain examples, by {word.lower()}",
                    legend=keys,
                )
            )
    if not drawn:
        return None
    note = html.paragraph(f"{NOTE} {bands_note(view.assessed)}")
    return Chapter("retention", "Retention", note + html.legend(keys) + html.grid(drawn))


def _retained(predictor: Predictor, kind: str) -> plots.Line | None:
    """Return the mean over the runs that have a curve at the same shares as the first."""
    assessments = [run.assessment(predictor.way) for run in predictor.results]
    found = [c for one in assessments if (c := one.get("retention")) and kind in c]
    found = [curve for curve in found if curve["fractions"] == found[0]["fractions"]]
    if not found:
        return None
    return plots.Line.mean(
        predictor.key,
        100 * np.array(found[0]["fractions"]),
        [[100 * number(value) for value in curve[kind]] for curve in found],
    )
