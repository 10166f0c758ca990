"""The chapter on calibration: how sure a model is, and how often it is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedivon_app.plurals import counted
from fedivon_app.report import html, plots
from fedivon_app.report.html import Chapter
from fedivon_app.report.results import WAYS, RunResults, number
from fedivon_app.report.view import PageView, Predictor

FEW = 10  # examples in a bin: with fewer, how many of them are right is chance
NOTE = (
    "On the diagonal a model is right as often as it says; below it, it is too sure. "
    f"Bins with fewer than {FEW} examples have no point."
)


@dataclass(frozen=True, eq=False)
class Reliability:
    """The calibration bins of a line, over all its runs' examples together."""

    predictor: Predictor
    centres: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray

    def point(self, values: np.ndarray) -> np.ndarray:
        """Return the values of bins with enough examples to say something, NaN for the others."""
        return np.where(self.count >= FEW, values, np.nan)


def chapter(view: PageView) -> Chapter | None:
    """Draw the reliability diagram, and how many examples a model is how sure of."""
    found = [bins for one in view.assessed if (bins := _pooled(one))]
    if not found:
        return None
    keys = [bins.predictor.key for bins in found]
    reliability = plots.curves(
        title="Reliability",
        x="confidence",
        y="accuracy",
        lines=[_line(bins, bins.confidence, bins.point(bins.accuracy)) for bins in found],
        diagonal=True,
    )
    confidence = plots.curves(
        title="How many examples",
        x="confidence",
        y="examples",
        lines=[_line(bins, bins.centres, bins.count) for bins in found],
    )
    drawn = [
        view.pictures(
            name="reliability",
            figure=reliability,
            title="Reliability: accuracy against confidence",
            legend=keys,
        ),
        view.pictures(
            name="confidence",
            figure=confidence,
            title="Number of examples by confidence",
            legend=keys,
        ),
    ]
    body = html.paragraph(_note(view)) + html.legend(keys) + html.grid(drawn)
    return Chapter("calibration", "Calibration", body)


def _line(bins: Reliability, x: np.ndarray, y: np.ndarray) -> plots.Line:
    return plots.Line(label=bins.predictor.label, style=bins.predictor.style, x=x, y=y)


def _note(view: PageView) -> str:
    texts = {_assessment(run) for one in view.assessed for run in one.results}
    lacking = [
        group.label
        for group in view.groups
        if not any(run.assessment(way) for run in group.results for way in WAYS)
    ]
    note = f"{NOTE} {'; '.join(sorted(texts))}. {view.ways_note(view.assessed)}"
    return note + (f"Not assessed: {'; '.join(lacking)}." if lacking else "")


def _assessment(results: RunResults) -> str:
    """Return which model was assessed, and on how many examples."""
    found = results.uncertainty
    which = f"Round {found.get('round')} ({found.get('checkpoint')} checkpoint)"
    return f"{which}, {counted(found.get('num_examples') or 0, 'test example')}"


def _pooled(predictor: Predictor) -> Reliability | None:
    """Return the bins of all runs' examples together."""
    assessments = [run.assessment(predictor.way) for run in predictor.results]
    found = [bins for one in assessments if (bins := one.get("reliability"))]
    if not found:
        return None
    counts = [[number(value) for value in bins["count"]] for bins in found]
    total = np.sum(counts, axis=0)

    def pooled(name: str) -> np.ndarray:
        means = np.nan_to_num([[number(value) for value in bins[name]] for bins in found])
        with np.errstate(invalid="ignore"):  # an empty bin has neither confidence nor accuracy
            return np.asarray(np.sum(np.multiply(counts, means), axis=0) / total)

    return Reliability(
        predictor=predictor,
        centres=(np.arange(len(total)) + 0.5) / len(total),
        confidence=pooled("confidence"),
        accuracy=pooled("accuracy"),
        count=np.asarray(total),
    )
