"""A merge rule: the coordinate-wise median of the clients' points or posteriors."""

from __future__ import annotations

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.aggregation import Rule


class Median(Rule):
    """The median of the means, and of the precisions where there are any; weights have no say.

    A median is no sum, so all clients' vectors are held at once.
    """

    weighted = False
    takes_points = True

    def __init__(self, size: int, weights: np.ndarray, previous: Posterior | None):
        super().__init__(size, weights, previous)
        self.means = np.empty((len(weights), size), np.float32)
        self.precisions = np.empty((len(weights), size), np.float32)
        self.filled = np.zeros(size, int)  # clients that a coordinate has been given by

    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        client = self.filled[part][0]
        self.precisions[client, part] = precision
        self.add_point(part, weight, mean)

    def add_point(self, part: slice, weight: float, mean: np.ndarray) -> None:
        client = self.filled[part][0]
        self.means[client, part] = mean
        self.filled[part] += 1

    def finish(self) -> Posterior:
        return Posterior(np.median(self.means, axis=0), np.median(self.precisions, axis=0))

    def finish_point(self) -> Posterior:
        return Posterior(np.median(self.means, axis=0))
