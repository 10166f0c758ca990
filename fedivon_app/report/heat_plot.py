"""A heat map: numbers in rows and columns, each written into its field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from fedivon_app.report.style import styled

FIELD = (1.05, 0.34)  # of a number, in inches, at least
LETTER = 0.085  # width of a letter in the name of a row or column
HEAD = 0.95  # above the fields, for the title and the names of the columns
DARK = 0.55  # of the scale, from which on numbers are white


@dataclass(frozen=True, eq=False)
class Heat:
    """What a heat map shows; NaN is an empty field. Dark is bad: low, or high if `high_is_bad`."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: np.ndarray
    digits: int = 1
    high_is_bad: bool = False


@styled
def heat_map(heat: Heat) -> Figure:
    """Draw the numbers, from light for the best to dark for the worst."""
    left = 0.3 + LETTER * max(map(len, heat.rows))
    longest = max(len(line) for name in heat.columns for line in name.split("\n"))
    width = left + max(FIELD[0], LETTER * longest) * len(heat.columns) + 0.15
    height = HEAD + FIELD[1] * len(heat.rows) + 0.1
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes(
        (left / width, 0.1 / height, 1 - (left + 0.15) / width, 1 - (HEAD + 0.1) / height)
    )
    shades = _shades(heat)
    axes.imshow(shades, cmap="YlOrRd", vmin=0, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(heat.values):
        if np.isfinite(value):
            colour = "white" if shades[row, column] > DARK else "black"
            text = f"{value:.{heat.digits}f}"
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=9)
    axes.set_xticks(range(len(heat.columns)), heat.columns, fontsize=9, parse_math=False)
    axes.set_yticks(range(len(heat.rows)), heat.rows, fontsize=9, parse_math=False)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.text(0.12 / width, 1 - 0.26 / height, heat.title, fontsize=11, parse_math=False)
    return figure


def _shades(heat: Heat) -> np.ndarray:
    """Return how bad each number is among all, from 0 to 1; empty fields stay empty.

    It is the root of the way from the best to the worst, so that a run that diverged leaves some
    shades for what others lose.
    """
    worse = heat.values if heat.high_is_bad else -heat.values
    low = np.nanmin(worse)
    spread = np.nanmax(worse) - low
    shades: np.ndarray = np.sqrt((worse - low) / spread) if spread else np.zeros_like(worse)
    return shades
