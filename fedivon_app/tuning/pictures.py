"""A picture for every setting that was searched: the held-out score by its value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedivon_app.core.search_range import Choices, Option, Plain
from fedivon_app.report.axes import plain_log, ticks
from fedivon_app.report.grouping import written
from fedivon_app.report.plots import panel, series_id
from fedivon_app.report.style import INK, Key, look, styled
from fedivon_app.tuning.halving import Trial, best_of

EDGE = 0.03  # the share of an axis that it has beyond the ends of a range
ABOVE = 3.0  # scores are shown up to so many times the distance of the median from the best


@dataclass(frozen=True)
class Dots:
    """The trials that came as far as one rung, as places on the axes.

    Those in `outside` are above what is shown, or failed.
    """

    key: Key
    x: Sequence[float]
    y: Sequence[float]
    outside: Sequence[float]


def keys_of(rungs: Sequence[int]) -> list[Key]:
    """Return what the legend says of the trials that came as far as each rung."""
    return [Key(f"after round {rung}", place) for place, rung in enumerate(rungs)]


@styled
def setting_figure(
    name: str, option: Option, trials: Sequence[Trial], rungs: Sequence[int]
) -> Figure:
    """Draw a dot a trial, by the value of one setting; the best one has a ring.

    Triangles at the upper edge are trials that failed, or whose score is far above.
    """
    top = highest_shown([trial.last_score for trial in trials if trial.scores])
    figure, axes = panel(name, "", "held-out NLL")
    if isinstance(option, Choices):
        _words_below(axes, [written(value) for value in in_order(option)])
    elif option.log:
        _numbers_below(axes, option.low, option.high)
    else:
        room = EDGE * (option.high - option.low)
        axes.set_xlim(option.low - room, option.high + room)
        axes.xaxis.set_major_locator(ticks())
    for dots in dots_of(name, option, trials, rungs, top):
        _draw(axes, dots, top)
    best = best_of(trials, rungs)
    if best is not None:
        axes.plot(
            place_of(best, name, option),
            best.last_score,
            linestyle="",
            marker="o",
            markersize=10,
            markerfacecolor="none",
            markeredgecolor=INK,
            markeredgewidth=1,
        )
    axes.yaxis.set_major_locator(ticks())
    return figure


def dots_of(
    name: str, option: Option, trials: Sequence[Trial], rungs: Sequence[int], top: float
) -> list[Dots]:
    """Return the places of all trials with a run, by the last rung that they came to."""
    found = []
    for rung, key in zip(rungs, keys_of(rungs), strict=True):
        there = [trial for trial in trials if trial.scores and max(trial.scores) == rung]
        shown = [trial for trial in there if trial.last_score <= top]
        beyond = [trial for trial in there if not trial.last_score <= top]
        found.append(
            Dots(
                key=key,
                x=[place_of(trial, name, option) for trial in shown],
                y=[trial.last_score for trial in shown],
                outside=[place_of(trial, name, option) for trial in beyond],
            )
        )
    return found


def place_of(trial: Trial, name: str, option: Option) -> float:
    """Return where a trial stands on the axis of a setting; choices are numbered."""
    value = trial.values[name]
    return float(in_order(option).index(value) if isinstance(option, Choices) else value)


def in_order(option: Choices) -> list[Plain]:
    """Return the choices as an axis has them: numbers by their size, words as they were given."""
    numbers = [value for value in option.values if isinstance(value, int | float)]
    return sorted(numbers) if len(numbers) == len(option.values) else list(option.values)


def highest_shown(scores: Sequence[float]) -> float:
    """Return the highest score that a picture shows, for a few are often far above the others."""
    finite = [score for score in scores if math.isfinite(score)]
    if not finite:
        return math.inf
    best = min(finite)
    limit = best + ABOVE * (float(np.median(finite)) - best)
    return max(score for score in finite if score <= limit)


def _draw(axes: Axes, dots: Dots, top: float) -> None:
    shape = look(dots.key.style)
    common: dict[str, Any] = {
        "linestyle": "",
        "color": shape.hex,
        "alpha": 0.75,
        "gid": series_id(dots.key.style),
    }
    if dots.x:
        axes.plot(dots.x, dots.y, marker=shape.marker, markersize=4, **common)
    if dots.outside:
        edge = [top if math.isfinite(top) else 0.0] * len(dots.outside)
        axes.plot(dots.outside, edge, marker=6, markersize=6, clip_on=False, **common)


def _words_below(axes: Axes, words: Sequence[str]) -> None:
    axes.set_xlim(-0.5, len(words) - 0.5)
    axes.set_xticks(range(len(words)), list(words))


def _numbers_below(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    room = (high / low) ** EDGE
    axes.set_xlim(low / room, high * room)
    plain_log(axes.xaxis)
