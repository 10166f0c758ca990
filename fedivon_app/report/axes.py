"""Axes that tell the truth: ticks that do not touch, and no drama where nothing happens."""

from __future__ import annotations

import math
from collections.abc import Iterable

from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

LEAST = 0.1  # of its middle: an axis spans no less, so that what is nearly equal looks so
POINTS = 2.0  # and one of percentages no less than this
SIDEWAYS = 0.2  # of the axis: ticks stand no closer, for their numbers are wider than high
UPWARDS = 0.1
STEPS = ((1,), (1, 3), (1, 2, 5))  # round numbers of each decade, ever more of them
ENOUGH = 3  # ticks


def ticks(integer: bool = False) -> MaxNLocator:
    """Return what places a few round numbers on an axis."""
    return MaxNLocator(6, steps=(1, 2, 2.5, 5, 10), integer=integer, min_n_ticks=1)


def calm(axis: Axis, least: float | None = None) -> None:
    """Widen an axis that spans less than `least`, about its middle.

    Without `least`, this is a tenth of the middle.
    """
    low, high = sorted(axis.get_view_interval())
    middle = (low + high) / 2
    span = LEAST * abs(middle) if least is None else least
    if high - low < span:
        axis.set_view_interval(middle - span / 2, middle + span / 2, ignore=True)


def plain_log(axis: Axis) -> None:
    """Put plain numbers that do not touch at the ticks of a logarithmic axis.

    An axis on which the largest is nearly the smallest is widened first.
    """
    low, high = sorted(axis.get_view_interval())
    if high / low < 1 + LEAST:
        wider = math.sqrt((1 + LEAST) * low / high)
        low = low / wider
        high = high * wider
        axis.set_view_interval(low, high, ignore=True)
    apart = SIDEWAYS if isinstance(axis, XAxis) else UPWARDS
    axis.set_major_locator(FixedLocator(log_ticks(low, high, apart)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.7g}"))
    axis.set_minor_locator(NullLocator())


def log_ticks(low: float, high: float, apart: float) -> list[float]:
    """Return round numbers for a logarithmic axis from low to high.

    No two are closer than `apart`, a share of the axis. They are powers of ten, or 1, 3, 10, 30 and
    so on, or 1, 2, 5, 10 and so on, or, where all of these are too few, even steps.
    """
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    least = apart * math.log(high / low)
    chosen: list[float] = []
    for steps in STEPS:
        decades = range(first, last + 1)
        numbers = (step * 10.0**power for power in decades for step in steps)
        chosen = _apart([value for value in numbers if low <= value <= high], least)
        if len(chosen) >= ENOUGH:
            return chosen
    even = [float(v) for v in MaxNLocator(4).tick_values(low, high) if low <= v <= high and v > 0]
    return _apart(even, least) if len(even) > len(chosen) else chosen


def _apart(values: Iterable[float], least: float) -> list[float]:
    """Leave out what is too close to the number before it, by its logarithm."""
    kept: list[float] = []
    for value in values:
        if not kept or math.log(value / kept[-1]) >= least:
            kept.append(value)
    return kept
