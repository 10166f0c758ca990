"""Numbers as whole steps, rounded at random so that their expectation is what they were.

Without a generator of random numbers they are rounded to the nearest step.

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


Rng = np.random.Generator | None


class Steps(NamedTuple):
    """Whole steps as int32; `beyond` tells where there are none for a number, None for nowhere."""

    symbols: np.ndarray
    beyond: np.ndarray | None


class Grid(Protocol):
    """Where the steps of an array lie."""

    def steps(self, values: np.ndarray, rng: Rng) -> Steps:
        """Return the steps next to the values, one of both at random; without `rng` the nearer."""

    def restore(self, symbols: np.ndarray) -> np.ndarray:
        """Return the values at these steps, as float32; a ValueError says why there are none."""


@dataclass(frozen=True, eq=False)
class Linear:
    """Steps of `unit`, up and down from `base`: values base + unit * symbol."""

    base: np.ndarray | np.float32
    unit: np.ndarray

    def steps(self, values: np.ndarray, rng: Rng) -> Steps:
        with np.errstate(all="ignore"):
            x = values - self.base
            x /= self.unit
            lower = np.floor(x)
            x -= lower
            return _steps(lower, share_up=x, most=LARGEST // 2, rng=rng)

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

    def steps(self, values: np.ndarray, rng: Rng) -> Steps:
        with np.errstate(all="ignore"):
            x = values / self.base
            np.log2(x, out=x)
            x *= self.per_octave
            lower = np.floor(x)
            x -= lower
            x /= self.per_octave
            np.exp2(x, out=x)  # how far above the lower step, as a ratio
            x -= 1
            x /= np.float32(_roots(self.per_octave)[1] - 1)
            return _steps(lower, share_up=x, most=_OCTAVES * self.per_octave, rng=rng)

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
        return np.maximum(unit, _TINY, out=unit)


def _steps(lower: np.ndarray, *, share_up: np.ndarray, most: int, rng: Rng) -> Steps:
    """Return the lower steps or, with the given probability, the next ones.

    Without a generator the next ones are taken where their share is more than a half.
    """
    beyond = None
    if len(lower) and not -most < lower.min() <= lower.max() < most:
        beyond = ~(np.abs(lower) < most)
        lower = np.where(beyond, 0, lower)
    symbols = lower.astype(np.int32)
    symbols += share_up > (0.5 if rng is None else rng.random(len(lower), np.float32))
    return Steps(symbols, beyond)


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
