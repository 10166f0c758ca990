"""A figure of several panels of the same series, with one legend for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fedivon_app.report.axes import ticks
from fedivon_app.report.plots import Cloud, Line, draw_line
from fedivon_app.report.style import Key, add_legend, look, styled

SIZE = (3.5, 2.75)  # of a panel with its words, in inches
ACROSS = 3  # panels beside each other at most
LETTER = 0.072  # the width of a letter in a legend, in inches
HANDLE = 0.75  # and of the piece of line before a name
LINE = 0.2  # the height of a line of the legend
TITLE = 34  # letters of a panel's title that fit in a line above it
TITLE_LINES = 2  # at most


@dataclass(frozen=True)
class Panel:
    """Lines over a common axis, with the dots that they go through, if there are any."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    clouds: Sequence[Cloud] = ()
    log_x: bool = False


@styled
def panels_figure(panels: Sequence[Panel], across: int | None = None) -> Figure:
    """Draw panels in rows of `across`, with one legend below; one panel has it at its side.

    The place of a panel without lines is left empty.
    """
    columns = min(across or columns_of(len(panels)), len(panels))
    rows = math.ceil(len(panels) / columns)
    keys = list(dict.fromkeys(Key(line.label, line.style) for one in panels for line in one.lines))
    entries = [HANDLE + LETTER * len(key.label) for key in keys]
    beside = len(panels) == 1
    width = SIZE[0] * columns + (max(entries) if beside else 0)
    per_line = 1 if beside else names_per_line(entries, width)
    names = LINE * math.ceil(len(keys) / per_line)
    height = max(SIZE[1], names) if beside else SIZE[1] * rows + names
    figure = Figure(figsize=(width, height), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, one in zip_longest(places, panels):
        if one is not None and one.lines:
            _draw(axes, one)
        else:
            axes.set_visible(False)
    if beside:
        add_legend(figure, keys, "outside right upper")
    else:
        add_legend(figure, keys, "outside lower center", ncols=per_line)
    return figure


def columns_of(panels: int) -> int:
    """Return how many panels stand beside each other; four make a square."""
    return 2 if panels == 4 else min(panels, ACROSS)


def names_per_line(entries: Sequence[float], width: float) -> int:
    """Return how many names a line of a legend has: all if they fit, else lines of like length.

    `entries` are the widths of the names, and those of a legend stand in columns.
    """
    if sum(entries) <= width:
        return len(entries)
    most = max(1, int(width / max(entries)))
    return math.ceil(len(entries) / math.ceil(len(entries) / most))


def round_numbers(low: float, high: float) -> list[float]:
    """Return numbers for a logarithmic axis from low to high.

    They are 1, 3, 10, 30 and so on or, where these would be few, 1, 2, 5, 10 and so on.
    """
    powers = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 3) if high / low > 30 else (1, 2, 5)
    numbers = [step * float(power) for power in powers for step in steps]
    return [number for number in numbers if low <= number <= high]


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set(xlabel=panel.x, ylabel=panel.y, xscale="log" if panel.log_x else "linear")
    title = wrap(panel.title, TITLE, max_lines=TITLE_LINES, placeholder="…")
    axes.set_title("\n".join(title), parse_math=False)
    for cloud in panel.clouds:
        axes.scatter(cloud.x, cloud.y, s=7, color=look(cloud.style).hex, alpha=0.3, linewidth=0)
    for line in panel.lines:
        draw_line(axes, line)
    if panel.clouds:  # dots are those of the clouds
        for drawn in axes.lines:
            drawn.set_marker("")
    axes.yaxis.set_major_locator(ticks())
    if panel.log_x:
        axes.xaxis.set_major_locator(FixedLocator(round_numbers(*axes.get_xlim())))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    else:
        axes.xaxis.set_major_locator(ticks(integer=panel.x == "round"))
