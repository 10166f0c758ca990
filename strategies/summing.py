"""A merge as a sum: what one client contributes to it, and how that may travel as integers.

Every merge that is a sum over clients is written in two halves. `contribution` of a strategy is
what one client adds, and `conclude` what the server makes of the sum. In the open, the server
computes the contributions from the replies that it has. In secure aggregation each client computes
its own, and the server sees the sum alone: the equations are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior


@dataclass(frozen=True)
class Summand:
    """One vector of a sum, as secure aggregation has to know it.

    Its numbers are multiplied by the `power` of the server's precision, after which a client's are
    at most `bound`, and go as integers of so many `bits`: 32, 64, or what leaves another summand
    the rest of 64. `degree` is that of the client's weight in them: with weights that do not sum to
    1, the sum is divided by the sum of the weights, to the same power. `size` is how many numbers
    there are, None for one a weight of the network.
    """

    bound: float = 64.0
    power: float = 0.0
    degree: int = 1
    bits: int = 32
    size: int | None = None


@dataclass(frozen=True, eq=False)
class Own:
    """What one client brings to a merge: what it made of the round, and how much it counts."""

    payload: Payload
    weight: float
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def posterior(self) -> Posterior:
        """Return the client's posterior."""
        return self.payload.posterior


def add_up(contributions: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the sums of contributions by name, one of which is held at a time."""
    sums: dict[str, np.ndarray] = {}
    for own in contributions:
        for name, array in own.items():
            if name in sums:
                sums[name] += array
            else:
                sums[name] = np.array(array, np.float64)
    return sums
