"""The figure of methods under the same conditions: lines over names in place of numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedivon_app.report.axes import ticks
from fedivon_app.report.plots import (
    BOTTOM,
    LEFT,
    NAMED,
    RIGHT,
    SIZE,
    Line,
    draw_line,
    panel,
    series_id,
)
from fedivon_app.report.style import MUTED, look, styled

LETTER = 0.075  # the width of a letter in the name of a condition, in inches
ROW = 0.16  # the height of a line of it


@styled
def by_condition(title: str, y: str, conditions: Sequence[str], lines: Sequence[Line]) -> Figure:
    """Draw lines over named conditions, of which x is the place.

    There is a gap where y is NaN, and a bar where there is a deviation.
    """
    names = _ConditionNames.laid_out(conditions)
    width = LEFT + NAMED + RIGHT + names.slot * len(conditions)
    height = SIZE[1] - BOTTOM + names.below
    figure, axes = panel(title, "", y, size=(width, height))
    figure.subplots_adjust(bottom=names.below / height)
    _name_conditions(axes, names)
    for order, line in enumerate(lines):  # side by side, so that no bar hides another
        x = line.x + (order - (len(lines) - 1) / 2) * min(0.08, 0.5 / len(lines))
        draw_line(axes, replace(line, x=x, deviation=None))
        if line.deviation is not None:
            bars = axes.errorbar(
                x,
                line.y,
                line.deviation,
                fmt="none",
                ecolor=look(line.style).hex,
                elinewidth=1,
                capsize=2,
            )
            for part in bars.get_children():
                part.set_gid(series_id(line.style))
    axes.set(xticks=range(len(conditions)), xticklabels=[], xlim=(-0.5, len(conditions) - 0.5))
    axes.yaxis.set_major_locator(ticks())
    return figure


@dataclass(frozen=True)
class _ConditionNames:
    """The names of conditions below an axis, in rows, with what all of them set as a heading.

    Names are cut at the commas. Where they are too wide they stand upright, and uncut where there
    is no room even so. `slot` is the width of a condition and `below` the height of all names, in
    inches.
    """

    heading: str
    names: list[list[str]]
    upright: bool
    slot: float
    below: float

    @classmethod
    def laid_out(cls, conditions: Sequence[str]) -> _ConditionNames:
        slot = max((SIZE[0] - LEFT - NAMED - RIGHT) / len(conditions), ROW)
        keys = _common_keys(conditions)
        if keys:
            names = [[_values(condition)] for condition in conditions]
        else:
            names = [re.split("(?<=,) ", condition) for condition in conditions]
        upright = LETTER * max(len(row) + 1 for rows in names for row in rows) > slot
        if not keys and upright and ROW * (max(map(len, names)) + 0.5) > slot:
            names = [[condition] for condition in conditions]
        below = 0.2 + max(
            LETTER * max(map(len, rows)) if upright else ROW * len(rows) for rows in names
        )
        below += 1.2 * ROW if keys else 0
        return cls(heading=", ".join(keys), names=names, upright=upright, slot=slot, below=below)


def _common_keys(conditions: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of several conditions that all set the same ones, and nothing else."""
    found = set()
    for condition in conditions:
        parts = [part.partition("=") for part in condition.split(", ")]
        found.add(tuple(key for key, _, _ in parts) if all(sign for _, sign, _ in parts) else ())
    return found.pop() if len(conditions) > 1 and len(found) == 1 else ()


def _values(condition: str) -> str:
    return ", ".join(part.partition("=")[2] for part in condition.split(", "))


def _name_conditions(axes: Axes, names: _ConditionNames) -> None:
    for place, rows in enumerate(names.names):
        steps = 72 * ROW * np.arange(len(rows))
        for row, step in zip(rows, steps - steps.mean() if names.upright else steps, strict=True):
            axes.annotate(
                row,
                (place, 0),
                (step, -6) if names.upright else (0, -6 - step),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="right" if names.upright else "center",
                va="center" if names.upright else "top",
                rotation=90 if names.upright else 0,
                rotation_mode="anchor",
                color=MUTED,
                fontsize=9,
                parse_math=False,
            )
    axes.set_xlabel(names.heading, labelpad=72 * (names.below - 1.6 * ROW), parse_math=False)
