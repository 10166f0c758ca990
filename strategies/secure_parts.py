"""What is summed when clients are aggregated securely: the layout, a client's part, the total.

Server and client know the same of a round: what was sent, the settings, the number of clients, and
the largest number of examples among them (`largest`), by which sizes are divided so that weights
are at most 1. So both lay out the same sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.dense import Dense
from fedivon_app.core.secure.fixed_point import Layout, Slot
from fedivon_app.strategies.base import PosteriorStrategy, Total
from fedivon_app.strategies.summing import Own, Summand
from fedivon_app.strategies.weighting import raw_weight

WEIGHT, EXAMPLES, LOSS, BUFFERS = "weight", "examples", "loss", "buffers"
_SCALAR = Slot(1, bound=2.0**40, bits=64)
_FAR = 2.0**30  # the bound of what may be anything, for example what is weighted by 1/KL


@dataclass(frozen=True, eq=False)
class Trained:
    """The sums over a round's clients: for the merge, and what is told besides."""

    total: Total
    buffers: np.ndarray | None
    examples: int
    loss: float


@dataclass(frozen=True)
class TrainingSum:
    """The sum of what clients made of a round; `sent` is what all of them were sent."""

    strategy: PosteriorStrategy[Any]
    sent: Payload
    largest: int

    @property
    def weighting(self) -> str:
        """Return the weighting of the settings."""
        return str(self.strategy.settings.merge.weighting)

    def summands(self) -> dict[str, Summand]:
        """Return what is summed that depends on the method, and statistics of batch norm."""
        found = self.strategy.summands(self.sent)
        if self.sent.buffers is not None:
            size = self.sent.buffers.size
            found[BUFFERS] = Summand(bound=_FAR, bits=64, size=size)
        wide = self.strategy.settings.privacy.wide_sums
        return {
            name: replace(one, bound=_FAR, bits=64)
            if (wide and one.bits < 64) or (one.degree and self.weighting == "distance")
            else one
            for name, one in found.items()
        }

    def layout(self, clients: int) -> Layout:
        """Return how the sum over so many clients goes as integers."""
        size = len(self.sent.posterior)
        slots = {
            name: Slot(size if one.size is None else one.size, bound=one.bound, bits=one.bits)
            for name, one in self.summands().items()
        }
        return Layout(slots | {WEIGHT: _SCALAR, EXAMPLES: _SCALAR, LOSS: _SCALAR}, clients)

    def part(
        self, payload: Payload, num_examples: int, metrics: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Return what one client adds to the sum."""
        weight = raw_weight(
            self.weighting, payload.posterior, num_examples, self.sent.posterior, self.largest
        )
        own = self.strategy.contribution(Own(payload, weight, metrics), self.sent)
        if self.sent.buffers is not None and payload.buffers is not None:
            change = payload.buffers.astype(np.float64) - self.sent.buffers
            own[BUFFERS] = weight * change
        for name, one in self.summands().items():
            if one.power:
                own[name] = own[name] * self._unit(one)
        return own | {
            WEIGHT: np.array([weight]),
            EXAMPLES: np.array([num_examples]),
            LOSS: np.array([num_examples * metrics.get("loss", 0.0)]),
        }

    def read(self, sums: Mapping[str, np.ndarray], sizes: Sequence[int]) -> Trained:
        """Return what the sum over clients of these sizes says."""
        whole = float(sums[WEIGHT][0])
        found = {}
        for name, one in self.summands().items():
            value = sums[name]
            if one.power:
                value = value / self._unit(one)
            found[name] = value / whole**one.degree
        buffers = None
        if self.sent.buffers is not None:
            buffers = (self.sent.buffers + found.pop(BUFFERS)).astype(np.float32)
        examples = float(sums[EXAMPLES][0])
        return Trained(
            total=Total(found, self._weights(sizes)),
            buffers=buffers,
            examples=round(examples),
            loss=float(sums[LOSS][0]) / examples,
        )

    def _weights(self, sizes: Sequence[int]) -> np.ndarray:
        """Return the weights, as far as the roll call's sizes tell them."""
        if self.weighting == "size":
            return np.asarray(sizes, np.float64) / sum(sizes)
        known = 1 / len(sizes) if self.weighting == "equal" else np.nan
        return np.full(len(sizes), known)

    def _unit(self, summand: Summand) -> np.ndarray:
        posterior = self.sent.posterior
        if isinstance(posterior, Dense):
            raise TypeError("the numbers of a full covariance have no unit of their own")
        unit: np.ndarray = posterior.known_precision.astype(np.float64) ** summand.power
        return unit
