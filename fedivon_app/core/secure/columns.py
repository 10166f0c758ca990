"""The sums of a table's columns as one secure sum, exact whatever the columns' scales.

A number x is split in three, x = h 2^24 + m 2^-16 + l 2^-16 with whole numbers h and m and
|l| < 1, all of its sign, each of which keeps to a bound that fixed point needs. The sums of the
whole numbers are whole, and so are known exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedivon_app.core.secure.fixed_point import Layout, Slot

_HIGH = 2.0**24
_MIDDLE = 2.0**-16
_BOUND = 2.0**40  # of the whole numbers: x is up to 2^64


def layout(size: int, clients: int) -> Layout:
    """Return how so many numbers of so many clients are summed as integers."""
    slots = {
        "high": Slot(size, bound=_BOUND, bits=64),
        "middle": Slot(size, bound=_BOUND, bits=64),
        "low": Slot(size, bound=1.0, bits=64),
    }
    return Layout(slots, clients)


def part(vector: np.ndarray) -> dict[str, np.ndarray]:
    """Return what one client adds."""
    high = np.trunc(vector / _HIGH)
    rest = (vector - high * _HIGH) / _MIDDLE
    middle = np.trunc(rest)
    return {"high": high, "middle": middle, "low": rest - middle}


def read(sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the sum of the clients' vectors."""
    whole = np.rint(sums["high"]) * _HIGH
    return np.asarray(whole + (np.rint(sums["middle"]) + sums["low"]) * _MIDDLE)
