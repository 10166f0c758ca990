"""Rules that merge the clients' posteriors into one: single-pass sums, whatever the number of clients.

w_k are weights with sum 1, (mu_k, var_k, s_k = 1/var_k) the clients' means, variances and precisions, and (mu_o, s_o)
the server's posterior of the round before. Equations 10 to 17 are those of Fischer et al. 2024, section 2.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import nearest

_BLOCK = (
    1 << 15
)  # parameters a pass works on at once, so that its temporaries stay in the processor's cache


class Rule(ABC):
    """Two sums in float64 over the clients."""

    weighted = True  # whether the weights have a say
    takes_points = False  # whether posteriors without a precision can be merged
    start = "mean"  # where IVON's clients start unless told: with `posterior` this rule's precisions grow or shrink
    kept: int | None = (
        None  # coordinates that stay as they were, known after `finish`; None: the rule has no such
    )

    def __init__(self, size: int, weights: np.ndarray, previous: Posterior | None):
        self.sums = np.zeros(size), np.zeros(size)
        self.weights = weights
        self.previous = previous

    @abstractmethod
    def add(
        self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray | None
    ) -> None:
        """Takes in one block of one client's posterior."""

    @abstractmethod
    def finish(self, has_precision: bool) -> Posterior:
        """The sums as a posterior."""


class Product(Rule):
    """Product of Gaussians to the powers w_k (Pal et al. 2025, Eq. 15, 16): s = sum w s_k, mu = sum w s_k mu_k / s."""

    start = "posterior"

    def add(self, part, weight, mean, precision):
        weighted = np.multiply(precision, weight, dtype=np.float64)
        self.sums[0][part] += weighted
        self.sums[1][part] += np.multiply(weighted, mean, out=weighted)

    def finish(self, has_precision):
        precision, mean = self.sums
        return Posterior(np.divide(mean, precision, out=mean), precision)


class WeightedConflation(Product):
    """The product's mean, var = max(w) / sum(w s_k) (Eq. 16): never wider than the client with the largest weight."""

    start = "mean"

    def finish(self, has_precision):
        precision, mean = self.sums
        mean /= precision
        return Posterior(mean, np.divide(precision, self.weights.max(), out=precision))


class Conflation(Product):
    """The normalised product of the Gaussians (Eq. 15): s = sum s_k, mu = sum s_k mu_k / s. Weights have no say."""

    weighted = False
    start = "mean"

    def add(self, part, weight, mean, precision):
        super().add(part, 1.0, mean, precision)


class DistributedWeightConsolidation(Conflation):
    """Conflation less the common start of the clients (McClure et al. 2018; Eq. 17).

    s = sum s_k - (K-1) s_o, mu = (sum s_k mu_k - (K-1) s_o mu_o) / s. Where s is not positive the server's posterior
    stays as it was, and is counted in `kept`.
    """

    start = "posterior"

    def finish(self, has_precision):
        precision, mean = self.sums
        if self.previous is None or self.previous.precision is None:
            raise ValueError(
                "the rule dwc needs the server's posterior of the round before, with a precision"
            )
        start = np.multiply(self.previous.precision, len(self.weights) - 1, dtype=np.float64)
        precision -= start
        mean -= np.multiply(start, self.previous.mean, out=start)
        lost = ~(precision > 0)
        self.kept = int(lost.sum())
        mean[lost] = self.previous.mean[lost]
        precision[lost] = self.previous.precision[lost]
        np.divide(mean, precision, out=mean, where=~lost)
        return Posterior(mean, precision)


class NaiveWeightedAverage(Rule):
    """FedAvg's mean, and the same for variances (Eq. 10): mu = sum w mu_k, var = sum w var_k."""

    takes_points = True
    start = "posterior"

    def add(self, part, weight, mean, precision):
        self.sums[0][part] += np.multiply(mean, weight, dtype=np.float64)
        if precision is not None:
            self.sums[1][part] += np.divide(weight, precision, dtype=np.float64)

    def finish(self, has_precision):
        mean, variance = self.sums
        return Posterior(mean, np.reciprocal(variance, out=variance) if has_precision else None)


class WeightedSum(Rule):
    """The sum of independent Gaussian variables w_k theta_k (Eq. 11): mu = sum w mu_k, var = sum w^2 var_k."""

    def add(self, part, weight, mean, precision):
        self.sums[0][part] += np.multiply(mean, weight, dtype=np.float64)
        self.sums[1][part] += np.divide(weight * weight, precision, dtype=np.float64)

    def finish(self, has_precision):
        mean, variance = self.sums
        return Posterior(mean, np.reciprocal(variance, out=variance))


class LinearPool(Rule):
    """Mean and variance of the mixture of the clients (Eq. 13, 14): var = sum w (var_k + (mu_k - mu)^2).

    Means are summed as differences to the first client's, so that the squares of large means do not cancel.
    """

    def __init__(self, size, weights, previous):
        super().__init__(size, weights, previous)
        self.origin = np.zeros(size)
        self.seen = 0

    def add(self, part, weight, mean, precision):
        if self.seen < len(self.origin):  # the blocks of the first client
            self.origin[part] = mean
            self.seen += len(mean)
        difference = mean - self.origin[part]
        self.sums[0][part] += weight * difference
        self.sums[1][part] += weight * (1 / precision.astype(np.float64) + np.square(difference))

    def finish(self, has_precision):
        difference, square = self.sums
        square -= np.square(difference)
        return Posterior(
            np.add(self.origin, difference, out=difference), np.reciprocal(square, out=square)
        )


RULES: dict[str, type[Rule]] = {
    "nwa": NaiveWeightedAverage,
    "ws": WeightedSum,
    "lp": LinearPool,
    "conflation": Conflation,
    "wc": WeightedConflation,
    "dwc": DistributedWeightConsolidation,
    "product": Product,
}


def aggregate(
    rule: str,
    posteriors: Iterable[Posterior],
    weights: Sequence[float],
    previous: Posterior | None = None,
) -> Posterior:
    """The posteriors merged by the rule of this name. They may come from a generator: one is held at a time."""
    return aggregate_counting(rule, posteriors, weights, previous)[0]


def aggregate_counting(
    rule: str,
    posteriors: Iterable[Posterior],
    weights: Sequence[float],
    previous: Posterior | None = None,
) -> tuple[Posterior, int | None]:
    """The same, and how many coordinates the rule could not merge and kept from `previous`; None for all but dwc."""
    if rule not in RULES:
        raise ValueError(f"there is no aggregation rule {rule!r}: {nearest(rule, RULES)}")
    weights = np.asarray(weights, np.float64)
    if weights.size == 0 or not (
        np.isfinite(weights).all() and (weights >= 0).all() and abs(weights.sum() - 1) < 1e-6
    ):
        raise ValueError(
            f"the weights must be non-negative and sum to 1; these are {weights.tolist()}"
        )
    sums = None
    for weight, posterior in zip(weights.tolist(), posteriors, strict=True):
        size = len(posterior)
        has_precision = posterior.precision is not None
        if sums is None:
            first = (size, has_precision)
            sums = RULES[rule](size, weights, previous)
            if not (has_precision or sums.takes_points):
                raise ValueError(
                    f"the rule {rule} needs precisions, and these clients send none; use the rule nwa"
                )
        elif (size, has_precision) != first:
            raise ValueError(
                "the posteriors differ in length, or some have a precision and some do not"
            )
        for start in range(0, size, _BLOCK):
            part = slice(start, start + _BLOCK)
            sums.add(
                part,
                weight,
                posterior.mean[part],
                posterior.precision[part] if has_precision else None,
            )
    return sums.finish(has_precision), sums.kept
