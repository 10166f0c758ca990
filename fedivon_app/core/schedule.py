"""Learning-rate schedules, over the rounds of a run or the steps of a round."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, exp, pi
from typing import Literal

Shape = Literal["constant", "linear", "cosine", "exponential"]


@dataclass(frozen=True)
class Schedule:
    """A rate that falls from the first to the final one.

    `exponential` has no final rate: it holds for `decay_after` rounds, and then falls by
    exp(-decay) a round.
    """

    shape: Shape
    first: float
    final: float | None = None
    decay: float = 0.0
    decay_after: int = 0

    def in_round(self, server_round: int, rounds: int) -> float:
        """Return the rate of a round: the first in round 1, the final one in the last."""
        if self.shape == "exponential":
            return self.first * exp(-self.decay * max(server_round - self.decay_after, 0))
        if rounds == 1:
            return self.first
        return self.at((server_round - 1) / (rounds - 1))

    def at(self, progress: float) -> float:
        """Return the rate of a schedule that has an end, from progress 0 to progress 1."""
        if self.final is None:
            return self.first
        share = 1 - progress if self.shape == "linear" else 0.5 * (1 + cos(pi * progress))
        return self.final + (self.first - self.final) * share
