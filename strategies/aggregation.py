"""Rules that merge the clients' posteriors into one: single-pass sums, for any number of clients.

w_k are weights with sum 1, (mu_k, var_k, s_k = 1/var_k) the clients' means, variances and
precisions, and (mu_o, s_o) the server's posterior of the round before. Equations 10 to 17 are
those of Fischer et al. 2024, section 2.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.core.registry import Registry

_BLOCK = (
    1 << 15
)  # parameters a pass works on at once: its temporaries stay in the processor's cache


Weights = Sequence[float] | np.ndarray  # one for each client, with sum 1
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


class Product(Rule):
    """The product of the Gaussians to the powers w_k (Pal et al. 2025, Eq. 15, 16).

    s = sum w s_k, mu = sum w s_k mu_k / s.
    """

    start: ClassVar[Start] = "posterior"

    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        weighted = np.multiply(precision, weight, dtype=np.float64)
        self.first_sum[part] += weighted
        self.second_sum[part] += np.multiply(weighted, mean, out=weighted)

    def finish(self) -> Posterior:
        precision = self.first_sum
        return Posterior(np.divide(self.second_sum, precision, out=self.second_sum), precision)


class WeightedConflation(Product):
    """The product's mean with var = max(w) / sum(w s_k) (Eq. 16).

    It is never wider than the client with the largest weight.
    """

    start: ClassVar[Start] = "mean"

    def finish(self) -> Posterior:
        precision = self.first_sum
        mean = np.divide(self.second_sum, precision, out=self.second_sum)
        return Posterior(mean, np.divide(precision, self.weights.max(), out=precision))


class Conflation(Product):
    """The normalised product of the Gaussians (Eq. 15), in which weights have no say.

    s = sum s_k, mu = sum s_k mu_k / s.
    """

    weighted = False
    start: ClassVar[Start] = "mean"

    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        super().add(part, weight=1.0, mean=mean, precision=precision)


class DistributedWeightConsolidation(Conflation):
    """Conflation less the common start of the clients (McClure et al. 2018; Eq. 17).

    s = sum s_k - (K-1) s_o, mu = (sum s_k mu_k - (K-1) s_o mu_o) / s. Where s is not positive the
    server's posterior stays as it was, and is counted.
    """

    start: ClassVar[Start] = "posterior"
    _kept = 0

    @property
    def kept_coordinates(self) -> int | None:
        """Return how many coordinates had no positive precision and stayed as they were."""
        return self._kept

    def finish(self) -> Posterior:
        if self.previous is None or self.previous.precision is None:
            raise ValueError(
                "the rule dwc needs the server's posterior of the round before, with a precision"
            )
        precision = self.first_sum
        mean = self.second_sum
        start = np.multiply(self.previous.precision, len(self.weights) - 1, dtype=np.float64)
        precision -= start
        mean -= np.multiply(start, self.previous.mean, out=start)
        lost = ~(precision > 0)
        self._kept = int(lost.sum())
        mean[lost] = self.previous.mean[lost]
        precision[lost] = self.previous.precision[lost]
        np.divide(mean, precision, out=mean, where=~lost)
        return Posterior(mean, precision)


class NaiveWeightedAverage(Rule):
    """FedAvg's mean, and the same for variances (Eq. 10): mu = sum w mu_k, var = sum w var_k."""

    takes_points = True
    averages = True
    start: ClassVar[Start] = "posterior"

    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        self.add_point(part, weight, mean)
        self.second_sum[part] += np.divide(weight, precision, dtype=np.float64)

    def finish(self) -> Posterior:
        return Posterior(self.first_sum, np.reciprocal(self.second_sum, out=self.second_sum))

    def add_point(self, part: slice, weight: float, mean: np.ndarray) -> None:
        self.first_sum[part] += np.multiply(mean, weight, dtype=np.float64)

    def finish_point(self) -> Posterior:
        return Posterior(self.first_sum)


class WeightedSum(Rule):
    """The sum of the independent Gaussian variables w_k theta_k (Eq. 11).

    mu = sum w mu_k, var = sum w^2 var_k.
    """

    averages = True

    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        self.first_sum[part] += np.multiply(mean, weight, dtype=np.float64)
        self.second_sum[part] += np.divide(weight * weight, precision, dtype=np.float64)

    def finish(self) -> Posterior:
        return Posterior(self.first_sum, np.reciprocal(self.second_sum, out=self.second_sum))


class WassersteinBarycenter(Rule):
    """The Gaussian that is nearest to the clients' in the weighted squares of the W2 distance.

    For diagonal Gaussians W2^2 = sum (mu - mu_k)^2 + (sigma - sigma_k)^2, so that mu = sum w mu_k
    and sigma = sum w sigma_k (arXiv 2412.11646).
    """

    averages = True
    start: ClassVar[Start] = "posterior"

    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        self.first_sum[part] += np.multiply(mean, weight, dtype=np.float64)
        self.second_sum[part] += weight / np.sqrt(precision, dtype=np.float64)

    def finish(self) -> Posterior:
        sigma = self.second_sum
        return Posterior(self.first_sum, np.reciprocal(np.square(sigma, out=sigma), out=sigma))


class LinearPool(Rule):
    """The mean and variance of the mixture of the clients (Eq. 13, 14).

    mu = sum w mu_k, var = sum w (var_k + (mu_k - mu)^2). Means are summed as differences to the
    first client's, so that the squares of large means do not cancel.
    """

    averages = True

    def __init__(self, size: int, weights: np.ndarray, previous: Posterior | None):
        super().__init__(size, weights, previous)
        self.origin = np.zeros(size)
        self.seen = 0

    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        if self.seen < len(self.origin):  # the blocks of the first client
            self.origin[part] = mean
            self.seen += len(mean)
        difference = mean - self.origin[part]
        variance = 1 / precision.astype(np.float64)
        self.first_sum[part] += weight * difference
        self.second_sum[part] += weight * (variance + np.square(difference))

    def finish(self) -> Posterior:
        difference = self.first_sum
        variance = self.second_sum
        variance -= np.square(difference)
        mean = np.add(self.origin, difference, out=difference)
        return Posterior(mean, np.reciprocal(variance, out=variance))


RULES: Registry[type[Rule]] = Registry(
    "aggregation rule",
    {
        "nwa": NaiveWeightedAverage,
        "ws": WeightedSum,
        "lp": LinearPool,
        "conflation": Conflation,
        "wc": WeightedConflation,
        "dwc": DistributedWeightConsolidation,
        "product": Product,
        "w2": WassersteinBarycenter,
    },
    kind=Rule,
    classes=True,
)


@dataclass(frozen=True, eq=False)
class Aggregated:
    """A merged posterior, and how many coordinates the rule kept (None where it merges all)."""

    posterior: Posterior
    kept_coordinates: int | None = None


def aggregate(
    rule: str, posteriors: Iterable[Posterior], weights: Weights, previous: Posterior | None = None
) -> Posterior:
    """Return the posteriors merged by the rule of this name or import path.

    They may come from a generator: one is held at a time.
    """
    return aggregate_noting(rule, posteriors, weights, previous).posterior


def aggregate_noting(
    rule: str, posteriors: Iterable[Posterior], weights: Weights, previous: Posterior | None = None
) -> Aggregated:
    """Return the same, with how many coordinates the rule could not merge and kept."""
    kind = RULES.find(rule)
    shares = np.asarray(weights, np.float64)
    valid = np.isfinite(shares).all() and (shares >= 0).all() and abs(shares.sum() - 1) < 1e-6
    if shares.size == 0 or not valid:
        raise ValueError(
            f"the weights must be non-negative and sum to 1; these are {shares.tolist()}"
        )
    merge: Rule | None = None
    first = Posterior(np.empty(0))
    for weight, posterior in zip(shares.tolist(), posteriors, strict=True):
        if merge is None:
            first = posterior
            merge = kind(len(posterior), shares, previous)
            if posterior.precision is None and not kind.takes_points:
                raise ValueError(
                    f"the rule {rule} needs precisions, and these clients send none; "
                    "use the rule nwa"
                )
        elif len(posterior) != len(first) or (posterior.precision is None) != (
            first.precision is None
        ):
            raise ValueError(
                "the posteriors differ in length, or some have a precision and some do not"
            )
        _add(merge, weight, posterior)
    assert merge is not None  # there is at least one weight, and so one posterior
    merged = merge.finish_point() if first.precision is None else merge.finish()
    return Aggregated(merged, merge.kept_coordinates)


def _add(merge: Rule, weight: float, posterior: Posterior) -> None:
    """Take in one client's posterior, block by block."""
    for start in range(0, len(posterior), _BLOCK):
        part = slice(start, start + _BLOCK)
        mean = posterior.mean[part]
        if posterior.precision is None:
            merge.add_point(part, weight, mean)
        else:
            merge.add(part, weight=weight, mean=mean, precision=posterior.precision[part])
