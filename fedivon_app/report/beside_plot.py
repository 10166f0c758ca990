"""Numbers of two origins side by side: ours as dots, those of a paper as rings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedivon_app.report.axes import ticks
from fedivon_app.report.panel_plot import TITLE, TITLE_LINES, columns_of
from fedivon_app.report.style import COLOURS, MUTED, styled

WIDTH = 3.3  # of a panel, in inches
NAMES = 1.3  # the width of the names beside the first one
HEAD = 0.75  # the height of titles and ticks
ROW = 0.24  # and of a row
LEGEND = 0.35
APART = 0.15  # how far a ring stands below its dot, in rows


@dataclass(frozen=True)
class Pair:
    """What a row has of ours and of the paper's, each with its deviation, where it has any."""

    name: str
    ours: float | None = None
    our_deviation: float = 0.0
    theirs: float | None = None
    their_deviation: float = 0.0


@styled
def beside_figure(title: str, panels: Mapping[str, Sequence[Pair]]) -> Figure:
    """Draw a panel for each column, with a row for each name; all panels have the same rows."""
    columns = columns_of(len(panels))
    rows = -(-len(panels) // columns)
    names = [pair.name for pair in next(iter(panels.values()))]
    size = (NAMES + WIDTH * columns, rows * (HEAD + ROW * len(names)) + LEGEND)
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, (column, pairs) in zip(places, panels.items(), strict=False):
        axes.set_title("\n".join(wrap(column, TITLE, max_lines=TITLE_LINES)), parse_math=False)
        _draw(axes, pairs)
        axes.set_yticks(range(len(names)), names)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    places[0].invert_yaxis()
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, parse_math=False)
    handles = [_handle("ours", filled=True), _handle("the paper", filled=False)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw(axes: Axes, pairs: Sequence[Pair]) -> None:
    for place, pair in enumerate(pairs):
        if pair.ours is not None:
            axes.errorbar(
                pair.ours, place - APART, xerr=pair.our_deviation, fmt="o", color=COLOURS[0], ms=4.5
            )
        if pair.theirs is not None:
            axes.errorbar(
                pair.theirs,
                place + APART,
                xerr=pair.their_deviation,
                fmt="o",
                color=MUTED,
                mfc="none",
                ms=4.5,
            )
    axes.xaxis.set_major_locator(ticks())
    axes.grid(False, axis="y")


def _handle(label: str, *, filled: bool) -> Line2D:
    colour = COLOURS[0] if filled else MUTED
    face = colour if filled else "none"
    return Line2D([], [], color=colour, marker="o", mfc=face, linestyle="none", ms=4.5, label=label)
