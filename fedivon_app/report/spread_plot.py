"""A figure of how precisions spread: a row a tensor, or a row a group of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from fedivon_app.report.plots import rows_panel, series_id
from fedivon_app.report.style import look, styled


@dataclass(frozen=True, eq=False)
class Spread:
    """Quantiles of one row, by the names that a record has them under: min, p1, p50, p99, max."""

    label: str
    style: int
    quantiles: Mapping[str, float]


@styled
def spreads(title: str, x: str, rows: Sequence[Spread]) -> Figure:
    """Draw a row each, its name above it, on a logarithmic axis.

    It shows the median, a bar from the 1st to the 99th percentile, and whiskers to the ends.
    """
    figure, axes = rows_panel(title, x, [row.label for row in rows])
    axes.set_xscale("log")
    for place, row in enumerate(rows):
        colour = look(row.style).hex
        series = series_id(row.style)
        at = row.quantiles
        axes.plot((at["min"], at["max"]), (place, place), color=colour, linewidth=1.2, gid=series)
        bars = axes.barh(
            place,
            at["p99"] - at["p1"],
            height=0.26,
            left=at["p1"],
            color=colour,
            alpha=0.4,
            linewidth=0,
        )
        bars.patches[0].set_gid(series)
        middle = (at["p50"], at["p50"])
        axes.plot(middle, (place - 0.2, place + 0.2), color=colour, linewidth=2.4, gid=series)
    least = min(row.quantiles["min"] for row in rows)
    most = max(row.quantiles["max"] for row in rows)
    few = most / least < 30
    room = max((most / least) ** 0.08, 1.1)  # for the number at the first tick
    axes.set_xlim(least / room, most * room)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=6))
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.xaxis.set_minor_locator(NullLocator())
    return figure


def _plain(value: float, _: object) -> str:
    return f"{value:,.0f}" if 1 <= value < 1e7 else f"{value:.3g}"
