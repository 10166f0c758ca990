"""Figures: plain numbers go in, a matplotlib figure comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fedivon_app.report.axes import calm, plain_log, ticks
from fedivon_app.report.style import COLOURS, MUTED, Key, look, styled

SIZE = (4.4, 3.2)  # of a panel, in inches
LEFT = 0.52  # the margins of a panel, the same for all so that they align
RIGHT = 0.12
BOTTOM = 0.55
TOP = 0.38
FAR_APART = 8  # times the x of another line's end: then an axis of bytes is logarithmic
NAMED = 0.2  # more at the left for the name of the axis


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a figure.

    Where several runs stand behind it, it has a band of one standard deviation to either side.
    """

    label: str
    style: int
    x: np.ndarray
    y: np.ndarray
    deviation: np.ndarray | None = None

    @classmethod
    def mean(cls, key: Key, x: np.ndarray, runs: Sequence[Sequence[float]]) -> Line:
        """Return mean and sample standard deviation (n - 1) of several runs' values at `x`."""
        values = np.array(runs, float)
        return cls(
            label=key.label,
            style=key.style,
            x=x,
            y=values.mean(axis=0),
            deviation=values.std(axis=0, ddof=1) if len(values) > 1 else None,
        )


@dataclass(frozen=True, eq=False)
class Shares:
    """A histogram of one group, as shares of the examples.

    `outside` is that of the examples from another data set.
    """

    label: str
    style: int
    edges: np.ndarray
    inside: np.ndarray
    outside: np.ndarray | None = None

    @classmethod
    def mean(cls, key: Key, runs: Sequence[Mapping[str, Sequence[float]]]) -> Shares:
        """Return the mean of several runs' histograms, on the edges that reach furthest.

        Each has `edges`, `in` and perhaps `out`, which the mean has only if all of them do.
        """
        edges = np.array(max((run["edges"] for run in runs), key=lambda edges: edges[-1]), float)

        def shares(part: str) -> np.ndarray:
            sums = [np.interp(edges, run["edges"], np.cumsum([0, *run[part]])) for run in runs]
            return np.diff(np.mean(sums, axis=0))

        return cls(
            label=key.label,
            style=key.style,
            edges=edges,
            inside=shares("in"),
            outside=shares("out") if all(run.get("out") for run in runs) else None,
        )


@dataclass(frozen=True, eq=False)
class Cloud:
    """The dots of one group."""

    label: str
    style: int
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True, eq=False)
class Values:
    """The numbers of one group, in any order."""

    label: str
    style: int
    values: Sequence[float]


def far_apart(lines: Sequence[Line]) -> bool:
    """Tell whether one line ends so far before another that it would be hard to see."""
    ends = [line.x[-1] for line in lines if len(line.x)]
    return bool(ends) and max(ends) > FAR_APART * min(ends)


@styled
def curves(
    title: str,
    x: str,
    y: str,
    lines: Sequence[Line],
    *,
    log: bool = False,
    log_x: bool = False,
    diagonal: bool = False,
    least: float | None = None,
) -> Figure:
    """Draw lines over a common axis, with `log` and `log_x` on logarithmic ones.

    With `diagonal` they lie in the unit square, with the line of perfect calibration. `least` is
    what the y axis spans at the least; without it this is a tenth of its values.
    """
    figure, axes = panel(title, x, y)
    if log:
        axes.set_yscale("log")
    if diagonal:
        axes.plot((0, 1), (0, 1), color=MUTED, linewidth=1, dashes=(2, 2))
        axes.set(xlim=(0, 1), ylim=(0, 1))
    for line in lines:
        draw_line(axes, line, log=log)
    if log:
        plain_log(axes.yaxis)
    elif not diagonal:
        calm(axes.yaxis, least)
        axes.yaxis.set_major_locator(ticks())
    if log_x:
        axes.set_xscale("log")
        plain_log(axes.xaxis)
    else:
        axes.xaxis.set_major_locator(ticks(integer=x == "round"))
    return figure


@styled
def dots(
    title: str,
    y: str,
    values: Mapping[int, float],
    *,
    level: float,
    what: str,
    least: float | None = None,
) -> Figure:
    """Draw one dot a client, by its number, and a dashed line at a level that `what` names.

    `least` is as in `curves`.
    """
    figure, axes = panel(title, "client", y)
    if np.isfinite(level):
        axes.axhline(level, color=MUTED, linewidth=1, dashes=(4, 2))
        axes.set_title(f"dashed: {what}", loc="right", fontsize=9, color=MUTED)
    axes.plot(
        list(values), list(values.values()), linestyle="", marker="o", color=COLOURS[0], alpha=0.75
    )
    axes.xaxis.set_major_locator(ticks(integer=True))
    calm(axes.yaxis, least)
    axes.yaxis.set_major_locator(ticks())
    return figure


@styled
def scatter(
    title: str,
    x: str,
    y: str,
    clouds: Sequence[Cloud],
    *,
    diagonal: bool = False,
    log: bool = False,
) -> Figure:
    """Draw the dots of every cloud.

    With `diagonal` there is a line where both values are equal; with `log` the x axis is
    logarithmic.
    """
    figure, axes = panel(title, x, y)
    if diagonal:
        values = [value for cloud in clouds for axis in (cloud.x, cloud.y) for value in axis]
        ends = (min(values), max(values))
        axes.plot(ends, ends, color=MUTED, linewidth=1, dashes=(4, 2))
        axes.set_title("dashed: equal", loc="right", fontsize=9, color=MUTED)
    for cloud in clouds:
        shape = look(cloud.style)
        axes.plot(
            cloud.x,
            cloud.y,
            linestyle="",
            marker=shape.marker,
            markersize=4,
            color=shape.hex,
            alpha=0.75,
            gid=series_id(cloud.style),
        )
    if log:
        axes.set_xscale("log")
        plain_log(axes.xaxis)
    else:
        axes.xaxis.set_major_locator(ticks())
    axes.yaxis.set_major_locator(ticks())
    return figure


@styled
def boxes(title: str, x: str, rows: Sequence[Values], least: float | None = None) -> Figure:
    """Draw a row a group, its name above it.

    It shows median and quartiles, and whiskers to the ends, with no value left out. `least` is what
    the axis spans at the least; without it this is a tenth of its values.
    """
    figure, axes = rows_panel(title, x, [row.label for row in rows])
    for place, row in enumerate(rows):
        colour = look(row.style).hex
        series = series_id(row.style)
        low, first, median, third, high = np.percentile(row.values, (0, 25, 50, 75, 100))
        axes.plot((low, high), (place, place), color=colour, linewidth=1.2, gid=series)
        bars = axes.barh(
            place, third - first, height=0.26, left=first, color=colour, alpha=0.4, linewidth=0
        )
        bars.patches[0].set_gid(series)
        axes.plot(
            (median, median), (place - 0.2, place + 0.2), color=colour, linewidth=2.4, gid=series
        )
    calm(axes.xaxis, least)
    return figure


@styled
def ridges(title: str, x: str, rows: Sequence[Shares]) -> Figure:
    """Draw a row a group, its name above it.

    Filled is what the model was trained for, dashed what it never saw.
    """
    figure, axes = rows_panel(title, x, [row.label for row in rows], height=0.52)
    for place, row in enumerate(rows):
        colour = look(row.style).hex
        series = series_id(row.style)
        base = place + 0.3
        axes.stairs(
            _ridge(row.inside, base),
            row.edges,
            baseline=base,
            fill=True,
            alpha=0.4,
            linewidth=0,
            color=colour,
            gid=series,
        )
        if row.outside is not None:
            axes.stairs(
                _ridge(row.outside, base),
                row.edges,
                baseline=base,
                linewidth=1.3,
                linestyle=(0, (3, 1.5)),
                color=colour,
                gid=series,
            )
    return figure


def _ridge(shares: np.ndarray, base: float) -> np.ndarray:
    """Return the heights of a histogram that stands on a base; the axis points down."""
    return base - 0.52 * shares / (np.max(shares) or 1.0)


def panel(
    title: str, x: str, y: str, *, size: tuple[float, float] = SIZE, left: float = LEFT
) -> tuple[Figure, Axes]:
    """Return a figure of one panel, with its title and the names of its axes."""
    figure = Figure(figsize=size)
    axes = figure.subplots()
    (width, height) = size
    figure.subplots_adjust(
        left=(left + (NAMED if y else 0)) / width,
        bottom=BOTTOM / height,
        right=1 - RIGHT / width,
        top=1 - TOP / height,
    )
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, parse_math=False)
    return figure, axes


def rows_panel(
    title: str, x: str, labels: Sequence[str], height: float = 0.42
) -> tuple[Figure, Axes]:
    """Return a figure of one panel with a row for each label, which stands above its row."""
    size = (SIZE[0], max(SIZE[1], 0.95 + height * len(labels)))
    figure, axes = panel(title, x, "", size=size, left=RIGHT)
    for place, label in enumerate(labels):
        axes.annotate(
            label if len(label) <= 54 else f"{label[:53]}…",
            (0, place - 0.28),
            (2, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="bottom",
            fontsize=9,
            parse_math=False,
        )
    axes.set_ylim(len(labels) - 0.45, -0.85)
    axes.yaxis.set_major_locator(NullLocator())
    axes.xaxis.set_major_locator(ticks())
    axes.spines["left"].set_visible(False)
    return figure, axes


def series_id(style: int) -> str:
    """Return the id by which the page finds a series in the picture."""
    return f"series{style}"


def draw_line(axes: Axes, line: Line, *, log: bool = False) -> None:
    """Draw a line and its band; where it has many points, they have no markers."""
    shape = look(line.style)
    values = np.where(np.asarray(line.y) > 0, line.y, np.nan) if log else line.y
    axes.plot(
        line.x,
        values,
        linestyle=shape.linestyle,
        solid_capstyle="butt",
        marker=shape.marker if len(line.x) <= 40 else None,
        linewidth=1.6 if len(line.x) <= 200 else 1,
        color=shape.hex,
        gid=series_id(line.style),
    )
    if line.deviation is not None:
        low = np.maximum(line.y - line.deviation, values / 10) if log else line.y - line.deviation
        axes.fill_between(
            line.x,
            low,
            line.y + line.deviation,
            alpha=0.14,
            linewidth=0,
            color=shape.hex,
            gid=series_id(line.style),
        )
