"""Reliability diagrams: how often predictions are right, beside how sure the model is of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedivon_app.report.axes import ticks
from fedivon_app.report.style import COLOURS, INK, MUTED, styled

SIZE = (2.6, 2.6)  # of a diagram with its words, in inches
STRIP = 0.85  # the height of the shares of the examples below it
HEAD = 0.3  # of the figure's title
FOOT = 0.25  # of the legend
ACROSS = 4  # diagrams beside each other at most
RIGHT = COLOURS[0]
# A gap is seen on the page, where a model is too sure, and on a bar, where it is not sure enough.
HATCHED: dict[str, Any] = {
    "facecolor": "none",
    "edgecolor": COLOURS[1],
    "hatch": "/////",
    "linewidth": 0.8,
}


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins of a diagram, each with its predictions' mean confidence and their accuracy.

    Both are NaN where a bin is empty. `count` is the number of predictions, where it is known.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray | None = None

    @classmethod
    def of(cls, values: Mapping[str, Sequence[float | None]]) -> Bins:
        """Return the bins as a run's file has them, in which None stands for NaN."""
        arrays = {name: np.array(listed, float) for name, listed in values.items()}
        return cls(arrays["confidence"], arrays["accuracy"], arrays.get("count"))

    @classmethod
    def pooled(cls, runs: Sequence[Bins]) -> Bins:
        """Return the bins of all runs' predictions; runs count alike if one has no counts."""
        counts = [run.count for run in runs if run.count is not None]
        counted = len(counts) == len(runs)
        there = [~np.isnan(run.accuracy) for run in runs]
        weights = np.array(counts if counted else there, float)
        total = weights.sum(axis=0)
        sums = {
            "confidence": (weights * np.nan_to_num([run.confidence for run in runs])).sum(axis=0),
            "accuracy": (weights * np.nan_to_num([run.accuracy for run in runs])).sum(axis=0),
        }
        with np.errstate(invalid="ignore"):  # an empty bin has neither confidence nor accuracy
            return cls(
                confidence=sums["confidence"] / total,
                accuracy=sums["accuracy"] / total,
                count=total if counted else None,
            )

    @property
    def ece(self) -> float | None:
        """Return the expected calibration error, where the predictions were counted."""
        if self.count is None:
            return None
        gaps = np.nan_to_num(np.abs(self.accuracy - self.confidence))
        return float((self.count * gaps).sum() / self.count.sum())


@styled
def diagrams(title: str, panels: Mapping[str, Bins]) -> Figure:
    """Draw a diagram for each of the bins, by their titles, in rows.

    Bars are as high as predictions of that confidence are often right, and their gaps to the mean
    confidence are drawn; on the diagonal there would be none. Below is the share of the examples in
    each bin, where it is known.
    """
    counted = any(bins.count is not None for bins in panels.values())
    columns = min(ACROSS, len(panels))
    rows = math.ceil(len(panels) / columns)
    tall = SIZE[1] + (STRIP if counted else 0)
    figure = Figure(figsize=(SIZE[0] * columns, tall * rows + HEAD + FOOT), layout="constrained")
    heights = [SIZE[1], STRIP] if counted else [SIZE[1]]
    places = figure.subplots(
        len(heights) * rows, columns, squeeze=False, height_ratios=heights * rows
    )
    for axes in places.ravel():
        axes.set_visible(False)
    for number, (name, bins) in enumerate(panels.items()):
        row, column = divmod(number, columns)
        stack = places[len(heights) * row : len(heights) * (row + 1), column]
        _diagram(stack[0], name, bins, first=column == 0)
        if bins.count is not None:
            _shares(stack[1], bins.count, first=column == 0)
            stack[0].tick_params(labelbottom=False)
        lowest = stack[1] if bins.count is not None else stack[0]
        lowest.set_xlabel("confidence")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, parse_math=False)
    figure.legend(
        [Patch(color=RIGHT, alpha=0.85), Patch(**HATCHED)],
        ["accuracy", "gap to the confidence"],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    return figure


def _diagram(axes: Axes, title: str, bins: Bins, *, first: bool) -> None:
    axes.set_visible(True)
    size = len(bins.accuracy)
    centres = (np.arange(size) + 0.5) / size
    accuracy = np.nan_to_num(bins.accuracy)
    gap = np.nan_to_num(bins.confidence - bins.accuracy)
    axes.bar(centres, accuracy, 1 / size, color=RIGHT, alpha=0.85, edgecolor="white", linewidth=0.5)
    axes.bar(centres, gap, 1 / size, bottom=accuracy, **HATCHED)
    axes.plot((0, 1), (0, 1), color=INK, linewidth=0.9, dashes=(3, 2))
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy" if first else "")
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.xaxis.set_major_locator(ticks())
    axes.yaxis.set_major_locator(ticks())


def _shares(axes: Axes, count: np.ndarray, *, first: bool) -> None:
    axes.set_visible(True)
    centres = (np.arange(len(count)) + 0.5) / len(count)
    axes.bar(centres, 100 * count / count.sum(), 1 / len(count), color=MUTED, linewidth=0)
    axes.set(xlim=(0, 1), ylabel="examples %" if first else "")
    axes.xaxis.set_major_locator(ticks())
    axes.yaxis.set_major_locator(MaxNLocator(3, steps=(1, 2, 5, 10)))
