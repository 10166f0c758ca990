"""Rules that merge the clients' posteriors into one: single-pass sums, for any number of clients.

w_k are weights with sum 1, (mu_k, var_k, s_k = 1/var_k) the clients' means, variances and
precisions, and (mu_o, s_o) the server's posterior of the round before. Equations 10 to 17 are
those of Fischer et al. 2024, section 2.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.core.registry import Registry
from fedivon_app.strategies.rule import Pair, Start, SumRule
from fedivon_app.strategies.rule import Rule as Rule  # others build on this name
from fedivon_app.strategies.summing import Summand

_BLOCK = (
    1 << 15
)  # parameters a pass works on at once: its temporaries stay in the processor's cache


Weights = Sequence[float] | np.ndarray  # one for each client, with sum 1
Sums = Mapping[str, np.ndarray]
SUMS = ("first", "second")  # the names of a rule's sums; of points there is the first alone


class Product(SumRule):
    """The product of the Gaussians to the powers w_k (Pal et al. 2025, Eq. 15, 16).

    s = sum w s_k, mu = sum w s_k mu_k / s.
    """

    start: ClassVar[Start] = "posterior"
    summands = (Summand(bound=256.0, power=-1.0), Summand(power=-1.0))

    def contribute(self, weight: float, mean: np.ndarray, precision: np.ndarray) -> Pair:
        weighted = np.multiply(precision, weight, dtype=np.float64)
        return weighted, weighted * mean

    def conclude(self, first: np.ndarray, second: np.ndarray) -> Pair:
        return np.divide(second, first, out=second), first


class WeightedConflation(Product):
    """The product's mean with var = max(w) / sum(w s_k) (Eq. 16).

    It is never wider than the client with the largest weight.
    """

    start: ClassVar[Start] = "mean"

    def conclude(self, first: np.ndarray, second: np.ndarray) -> Pair:
        mean, precision = super().conclude(first, second)
        return mean, np.divide(precision, self.weights.max(), out=precision)


class Conflation(Product):
    """The normalised product of the Gaussians (Eq. 15), in which weights have no say.

    s = sum s_k, mu = sum s_k mu_k / s.
    """

    weighted = False
    start: ClassVar[Start] = "mean"
    summands = (Summand(bound=256.0, power=-1.0, degree=0), Summand(power=-1.0, degree=0))

    def contribute(self, weight: float, mean: np.ndarray, precision: np.ndarray) -> Pair:
        return super().contribute(1.0, mean, precision)


class DistributedWeightConsolidation(Conflation):
    """Conflation less the common start of the clients (McClure et al. 2018; Eq. 17).

    s = sum s_k - (K-1) s_o, mu = (sum s_k mu_k - (K-1) s_o mu_o) / s. Where s is not positive the
    server's posterior stays as it was, and is counted.
    """

    start: ClassVar[Start] = "posterior"
    summands = (
        Summand(bound=256.0, power=-1.0, degree=0),
        Summand(bound=16.0, power=-1.0, degree=0),  # rounding is not averaged here, but adds up
    )
    _kept = 0

    @property
    def kept_coordinates(self) -> int | None:
        """Return how many coordinates had no positive precision and stayed as they were."""
        return self._kept

    def conclude(self, first: np.ndarray, second: np.ndarray) -> Pair:
        if self.previous is None or self.previous.precision is None:
            raise ValueError(
                "the rule dwc needs the server's posterior of the round before, with a precision"
            )
        precision = first
        mean = second
        start = np.multiply(self.previous.precision, len(self.weights) - 1, dtype=np.float64)
        precision -= start
        mean -= np.multiply(start, self.previous.mean, out=start)
        lost = ~(precision > 0)
        self._kept = int(lost.sum())
        mean[lost] = self.previous.mean[lost]
        precision[lost] = self.previous.precision[lost]
        np.divide(mean, precision, out=mean, where=~lost)
        return mean, precision


class NaiveWeightedAverage(SumRule):
    """FedAvg's mean, and the same for variances (Eq. 10): mu = sum w mu_k, var = sum w var_k."""

    takes_points = True
    averages = True
    start: ClassVar[Start] = "posterior"
    summands = (Summand(), Summand(bound=256.0, power=1.0))

    def contribute(self, weight: float, mean: np.ndarray, precision: np.ndarray) -> Pair:
        return (
            self.contribute_point(weight, mean),
            np.divide(weight, precision, dtype=np.float64),
        )

    def conclude(self, first: np.ndarray, second: np.ndarray) -> Pair:
        return first, np.reciprocal(second, out=second)

    def contribute_point(self, weight: float, mean: np.ndarray) -> np.ndarray:
        weighted: np.ndarray = np.multiply(mean, weight, dtype=np.float64)
        return weighted


class WeightedSum(SumRule):
    """The sum of the independent Gaussian variables w_k theta_k (Eq. 11).

    mu = sum w mu_k, var = sum w^2 var_k.
    """

    averages = True
    summands = (Summand(), Summand(bound=256.0, power=1.0, degree=2))

    def contribute(self, weight: float, mean: np.ndarray, precision: np.ndarray) -> Pair:
        return (
            np.multiply(mean, weight, dtype=np.float64),
            np.divide(weight * weight, precision, dtype=np.float64),
        )

    def conclude(self, first: np.ndarray, second: np.ndarray) -> Pair:
        return first, np.reciprocal(second, out=second)


class WassersteinBarycenter(SumRule):
    """The Gaussian that is nearest to the clients' in the weighted squares of the W2 distance.

    For diagonal Gaussians W2^2 = sum (mu - mu_k)^2 + (sigma - sigma_k)^2, so that mu = sum w mu_k
    and sigma = sum w sigma_k (arXiv 2412.11646).
    """

    averages = True
    start: ClassVar[Start] = "posterior"
    summands = (Summand(), Summand(bound=256.0, power=0.5))

    def contribute(self, weight: float, mean: np.ndarray, precision: np.ndarray) -> Pair:
        return (
            np.multiply(mean, weight, dtype=np.float64),
            weight / np.sqrt(precision, dtype=np.float64),
        )

    def conclude(self, first: np.ndarray, second: np.ndarray) -> Pair:
        return first, np.reciprocal(np.square(second, out=second), out=second)


class LinearPool(SumRule):
    """The mean and variance of the mixture of the clients (Eq. 13, 14).

    mu = sum w mu_k, var = sum w (var_k + (mu_k - mu)^2). Means are summed as differences to the
    first client's, so that the squares of large means do not cancel.
    """

    averages = True
    summands = (  # in sigmas and their squares
        Summand(power=0.5, bits=31),
        Summand(bound=64.0**2, power=1.0, bits=33),
    )

    def __init__(self, size: int, weights: np.ndarray, previous: Posterior | None):
        super().__init__(size, weights, previous)
        self.first_mean = np.zeros(size)
        self.origin = self.first_mean
        self.seen = 0

    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray) -> None:
        if self.seen < len(self.first_mean):  # the blocks of the first client
            self.first_mean[part] = mean
            self.seen += len(mean)
        super().add(part, weight, mean=mean - self.first_mean[part], precision=precision)

    def contribute(self, weight: float, mean: np.ndarray, precision: np.ndarray) -> Pair:
        variance = 1 / precision.astype(np.float64)
        return weight * mean, weight * (variance + np.square(mean))

    def conclude(self, first: np.ndarray, second: np.ndarray) -> Pair:
        second -= np.square(first)
        return first, np.reciprocal(second, out=second)


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
    return taken_in(rule, posteriors, weights, previous).result()


@dataclass(frozen=True, eq=False)
class TakenIn:
    """A rule that has been given all clients; `of_points` tells that they had no precisions."""

    rule: Rule
    of_points: bool

    def result(self) -> Aggregated:
        """Return what the rule makes of them."""
        merged = self.rule.finish_point() if self.of_points else self.rule.finish()
        return Aggregated(merged, self.rule.kept_coordinates)


def taken_in(
    rule: str, posteriors: Iterable[Posterior], weights: Weights, previous: Posterior | None = None
) -> TakenIn:
    """Return the rule of this name or import path, given the posteriors one after another."""
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
    return TakenIn(merge, of_points=first.precision is None)


def contribution(rule: type[SumRule], weight: float, own: Posterior, origin: np.ndarray) -> Sums:
    """Return what one client adds to the sums of a rule, with means as differences to an origin."""
    merge = rule(0, np.array([weight]), None)
    mean = own.mean.astype(np.float64) - origin
    if own.precision is None:
        return {SUMS[0]: merge.contribute_point(weight, mean)}
    return dict(zip(SUMS, merge.contribute(weight, mean, own.precision), strict=True))


def taken_as_sums(
    rule: type[SumRule], sums: Sums, weights: np.ndarray, previous: Posterior
) -> TakenIn:
    """Return a rule of whose clients the sums are known, with the previous mean as the origin."""
    origin = previous.mean.astype(np.float64)
    merge = rule(0, weights, Posterior(np.zeros_like(previous.mean), previous.precision))
    merge.origin = origin
    merge.first_sum = sums[SUMS[0]]
    if previous.precision is not None:
        merge.second_sum = sums[SUMS[1]]
    return TakenIn(merge, of_points=previous.precision is None)


def _add(merge: Rule, weight: float, posterior: Posterior) -> None:
    """Take in one client's posterior, block by block."""
    for start in range(0, len(posterior), _BLOCK):
        part = slice(start, start + _BLOCK)
        mean = posterior.mean[part]
        if posterior.precision is None:
            merge.add_point(part, weight, mean)
        else:
            merge.add(part, weight=weight, mean=mean, precision=posterior.precision[part])
