"""Learning curves as a picture of their own: for a screen, or for a column or a page of a paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedivon_app.core.text import Unit
from fedivon_app.report.axes import calm, plain_log, ticks
from fedivon_app.report.plots import Line, draw_line, far_apart
from fedivon_app.report.style import Key, add_legend, styled

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

By = Literal["rounds", "bytes"]  # what learning curves are drawn against
SCREEN = (3.25, 3.3)  # a panel where no width is given, in inches
LEGEND_LINE = 0.22  # the height of a line of the legend, in inches
# Letters of the size of a paper's captions; the caption itself takes the place of a title.
PAPER: dict[RcKeyType, Any] = {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.titlepad": 4,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 2.2,
}


@dataclass(frozen=True)
class Width:
    """How wide a picture for a paper is, in inches, and how many panels stand beside each other."""

    inches: float
    across: int
    legend: int  # names beside each other


WIDTHS = {"column": Width(3.3, across=2, legend=2), "page": Width(6.9, across=4, legend=4)}


@dataclass(frozen=True, eq=False)
class Panel:
    """One of several panels of a figure, by rounds or, with a unit, by bytes."""

    title: str
    lines: Sequence[Line]
    unit: Unit | None = None


@styled
def learning(panels: Sequence[Panel], title: str, width: str | None = None) -> Figure:
    """Draw panels of the same series, with one legend.

    `width` is a name in WIDTHS, for a picture in a paper; without it all panels stand side by side,
    under a title.
    """
    if width is None:
        count = len(panels)
        figure = _drawn(panels, Width(SCREEN[0] * count, count, legend=count), SCREEN[1])
        figure.suptitle(title, parse_math=False)
        return figure
    chosen = WIDTHS[width]
    with matplotlib.rc_context(PAPER):
        return _drawn(panels, chosen, 0.82 * chosen.inches / chosen.across)


def _drawn(panels: Sequence[Panel], width: Width, height: float) -> Figure:
    keys = [Key(line.label, line.style) for line in panels[0].lines]
    across = min(width.across, len(panels))
    rows = math.ceil(len(panels) / across)
    below = LEGEND_LINE * math.ceil(len(keys) / width.legend)
    figure = Figure(figsize=(width.inches, rows * height + below), layout="constrained")
    places = figure.subplots(rows, across, squeeze=False).ravel()
    for number, axes in enumerate(places):
        if number >= len(panels):
            axes.set_visible(False)
            continue
        axes.set_title(panels[number].title, parse_math=False)
        for line in panels[number].lines:
            draw_line(axes, line)
        calm(axes.yaxis)
        axes.yaxis.set_major_locator(ticks())
        _label_x(axes, panels[number])
    add_legend(figure, keys, "outside lower center", ncols=width.legend)
    return figure


def _label_x(axes: Axes, panel: Panel) -> None:
    if panel.unit is None:
        axes.xaxis.set_major_locator(ticks(integer=True))
        axes.set_xlabel("round")
        return
    axes.set_xlabel(f"{panel.unit.name} sent, both directions")
    if far_apart(panel.lines):
        axes.set_xscale("log")
        plain_log(axes.xaxis)
    else:
        axes.xaxis.set_major_locator(ticks())
