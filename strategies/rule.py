"""What a merge rule is: one that is given posteriors one by one, and one that is a sum of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.summing import Summand

Pair = tuple[np.ndarray, np.ndarray]
Start = Literal["posterior", "mean"]  # where a round of IVON's clients begins


class Rule(ABC):
    """A merge in the making, which is given the clients' posteriors one after another, in blocks.

    `weighted` tells whether the weights have a say, `takes_points` whether posteriors without a
    precision can be merged, `averages` whether the merged mean is the weighted average of the
    means. `start` is where IVON's clients start unless the settings tell: with
    `posterior` the precisions of some rules grow or shrink from round to round.
    """

    weighted: ClassVar[bool] = True
    takes_points: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    start: ClassVar[Start] = "mean"

    def __init__(self, size: int, weights: np.ndarray, previous: Posterior | None):
        self.first_sum = np.zeros(size)
        self.second_sum = np.zeros(size)
        self.weights = weights
        self.previous = previous

    @property
    def kept_coordinates(self) -> int | None:
        """Return how many coordinates stayed as they were; None for a rule that merges all."""
        return None

    @abstractmethod
    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        """Take in one block of one client's posterior."""

    @abstractmethod
    def finish(self) -> Posterior:
        """Return the merged posterior."""

    def add_point(self, part: slice, weight: float, mean: np.ndarray) -> None:
        """Take in one block of one client's point; for rules that take points."""
        raise TypeError(f"{type(self).__name__} merges posteriors, not points")

    def finish_point(self) -> Posterior:
        """Return the merged point; for rules that take points."""
        raise TypeError(f"{type(self).__name__} merges posteriors, not points")


class SumRule(Rule):
    """A rule that is a sum over the clients, of two vectors for each, whose names are in `SUMS`.

    `contribute` is what a client adds, and `conclude` what is made of the sums. `summands` tells
    secure aggregation how large the numbers of the two are. Where `origin` is given, means are
    summed as differences to it; that is another place to begin the axes from, and moves no result.
    """

    summands: ClassVar[tuple[Summand, Summand]]
    origin: np.ndarray | None = None

    @abstractmethod
    def contribute(self, weight: float, mean: np.ndarray, precision: np.ndarray) -> Pair:
        """Return what a client adds to both sums, in float64."""

    def contribute_point(self, weight: float, mean: np.ndarray) -> np.ndarray:
        """Return what a client's point adds; for rules that take points."""
        raise TypeError(f"{type(self).__name__} merges posteriors, not points")

    @abstractmethod
    def conclude(self, first: np.ndarray, second: np.ndarray) -> Pair:
        """Return the merged mean and precision of the sums, which may be overwritten."""

    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        first, second = self.contribute(weight, mean, precision)
        self.first_sum[part] += first
        self.second_sum[part] += second

    def add_point(self, part: slice, weight: float, mean: np.ndarray) -> None:
        self.first_sum[part] += self.contribute_point(weight, mean)

    def finish(self) -> Posterior:
        mean, precision = self.conclude(self.first_sum, self.second_sum)
        return Posterior(self._back(mean), precision)

    def finish_point(self) -> Posterior:
        return Posterior(self._back(self.first_sum))

    def _back(self, mean: np.ndarray) -> np.ndarray:
        return mean if self.origin is None else np.add(self.origin, mean, out=mean)
