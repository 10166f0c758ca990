"""Numbers as whole steps, rounded at random so that their expectation is what they were.

What is drawn for that is given (core/rounding.py); without it they are rounded to the nearest step.

A grid says what a step is: `Linear` for means, `Ratio` for precisions. `restore` is all that a
receiver needs. It uses nothing but sums, products, quotients and square roots of IEEE floats, and
constants, so that it gives the same bits on all machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import NamedTuple, Protocol

import numpy as np

from fedivon_app.core.symbols import LARGEST

_TINY = np.finfo(np.float32).tiny  # no step is smaller: below it arithmetic is not the same for all
_OCTAVES = 125  # of ratios, in both directions, that float32 has


class Steps(NamedTuple):
    """Whole steps as int32; `beyond` tells where there are none for a number, None for nowhere."""

    symbols: np.ndarray
    beyond: np.ndarray | None


class Grid(Protocol):
    """Where the steps of an array lie."""

    def steps(self, values: np.ndarray, drawn: np.ndarray | None) -> Steps:
        """Return the steps next to the values, one of both as drawn, or else the nearer."""

    def restore(self, symbols: np.ndarray) -> np.ndarray:
        """Return the values at these steps, as float32; a ValueError says why there are none."""


@dataclass(frozen=True, eq=False)
class Linear:
    """Steps of `unit`, up and down from `base`: values base + unit * symbol."""

    base: np.ndarray | np.float32
    unit: np.ndarray

    def steps(self, values: np.ndarray, drawn: np.ndarray | None) -> Steps:
        with np.errstate(all="ignore"):
            x = values - self.base
            x /= self.unit
            return _rounded(x, most=LARGEST // 2, drawn=drawn)

    def restore(self, symbols: np.ndarray) -> np.ndarray:
        values = symbols.astype(np.float32)
        with np.errstate(all="ignore"):
            values *= self.unit
            values += self.base
        return values


@dataclass(frozen=True, eq=False)
class Ratio:
    """Steps by octaves, up and down from `base`: values base * 2**(symbol / per_octave).

    `per_octave` is a power of two. It is the value whose expectation is kept, not its logarithm:
    sums of precisions then have no drift.
    """

    base: np.ndarray
    per_octave: int

    def steps(self, values: np.ndarray, drawn: np.ndarray | None) -> Steps:
        with np.errstate(all="ignore"):
            x = values / self.base
            lower = np.log2(x)
            lower *= self.per_octave
            np.floor(lower, out=lower)
            x *= np.exp2(lower / -self.per_octave)  # how far above the lower step, as a ratio
            x -= 1
            x /= np.float32(_roots(self.per_octave)[1] - 1)
            x += lower
            return _rounded(x, most=_OCTAVES * self.per_octave, drawn=drawn)

    def restore(self, symbols: np.ndarray) -> np.ndarray:
        if not len(symbols):
            return np.empty(0, np.float32)
        first = int(symbols.min())
        last = int(symbols.max())
        if max(-first, last) > _OCTAVES * self.per_octave:
            raise ValueError(f"a ratio is beyond {_OCTAVES} octaves")
        octaves, parts = np.divmod(np.arange(first, last + 1), self.per_octave)
        factors = np.ldexp(_roots(self.per_octave)[parts], octaves).astype(np.float32)
        values = np.array(self.base, np.float32)
        places = np.flatnonzero(symbols != 0)  # mostly few
        with np.errstate(all="ignore"):
            values[places] *= factors[symbols[places] - first]
        return values


def unit_of(step: float, scale: np.ndarray) -> np.ndarray:
    """Return steps that are a share of the scale, of which none is zero."""
    with np.errstate(all="ignore"):
        unit = scale * np.float32(step)
        if not unit.min(initial=_TINY) >= _TINY:
            np.maximum(unit, _TINY, out=unit)
        return unit


def _rounded(x: np.ndarray, *, most: int, drawn: np.ndarray | None) -> Steps:
    """Return the steps next to so many steps: the next one up as often as x is beyond the lower.

    That is ceil(x - u) for u in (0, 1), in the middle of one of 2**16 equal parts, or u = 1/2 where
    none is drawn: what is expected of a step is off by at most 2**-17 of a step. It writes to x.
    """
    if drawn is None:
        x -= np.float32(0.5)
    else:
        evenly = drawn.astype(np.float32)
        evenly += np.float32(0.5)
        evenly *= np.float32(2.0**-16)
        x -= evenly
    np.ceil(x, out=x)
    beyond = None
    if len(x) and not -most <= x.min() <= x.max() <= most:
        beyond = ~(np.abs(x) <= most)
        x[beyond] = 0
    return Steps(x.astype(np.int32), beyond)


@cache
def _roots(per_octave: int) -> np.ndarray:
    """Return 2**(i / per_octave) for i up to per_octave, by square roots and products alone."""
    root = 2.0
    for _ in range(per_octave.bit_length() - 1):
        root = sqrt(root)
    powers = [1.0]
    for _ in range(per_octave):
        powers.append(powers[-1] * root)
    return np.array(powers)
