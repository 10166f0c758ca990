"""Rules that merge the clients' posteriors into one: single-pass sums, whatever the number of clients.

w_k are weights with sum 1, (mu_k, var_k, s_k = 1/var_k) the clients' means, variances and precisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import nearest

_BLOCK = 1 << 15  # parameters a pass works on at once, so that its temporaries stay in the processor's cache


class Rule(ABC):
    """Two sums in float64 over the clients."""

    def __init__(self, size: int):
        self.sums = np.zeros(size), np.zeros(size)

    @abstractmethod
    def add(self, part: slice, weight: float, mean: np.ndarray, precision: np.ndarray | None) -> None:
        """Takes in one block of one client's posterior."""

    @abstractmethod
    def finish(self, has_precision: bool) -> Posterior:
        """The sums as a posterior."""


class Product(Rule):
    """Product of Gaussians to the powers w_k (Pal et al. 2025, Eq. 15, 16): s = sum w s_k, mu = sum w s_k mu_k / s."""

    def add(self, part, weight, mean, precision):
        if precision is None:
            raise ValueError("the rule product needs precisions, and these clients send none; use the rule nwa")
        weighted = np.multiply(precision, weight, dtype=np.float64)
        self.sums[0][part] += weighted
        self.sums[1][part] += np.multiply(weighted, mean, out=weighted)

    def finish(self, has_precision):
        precision, mean = self.sums
        return Posterior(np.divide(mean, precision, out=mean), precision)


class NaiveWeightedAverage(Rule):
    """FedAvg's mean, and the same for variances (Fischer et al. 2024): mu = sum w mu_k, var = sum w var_k."""

    def add(self, part, weight, mean, precision):
        self.sums[0][part] += np.multiply(mean, weight, dtype=np.float64)
        if precision is not None:
            self.sums[1][part] += np.divide(weight, precision, dtype=np.float64)

    def finish(self, has_precision):
        mean, variance = self.sums
        return Posterior(mean, np.reciprocal(variance, out=variance) if has_precision else None)


RULES: dict[str, type[Rule]] = {"nwa": NaiveWeightedAverage, "product": Product}


def aggregate(
    rule: str, posteriors: Iterable[Posterior], weights: Sequence[float], previous: Posterior | None = None
) -> Posterior:
    """The posteriors merged by the rule of this name. They may come from a generator: one is held at a time."""
    if rule not in RULES:
        raise ValueError(f"there is no aggregation rule {rule!r}: {nearest(rule, RULES)}")
    weights = np.asarray(weights, np.float64)
    if weights.size == 0 or not (np.isfinite(weights).all() and (weights >= 0).all() and abs(weights.sum() - 1) < 1e-6):
        raise ValueError(f"the weights must be non-negative and sum to 1; these are {weights.tolist()}")
    sums = None
    for weight, posterior in zip(weights.tolist(), posteriors, strict=True):
        size, has_precision = len(posterior), posterior.precision is not None
        if sums is None:
            first, sums = (size, has_precision), RULES[rule](size)
        elif (size, has_precision) != first:
            raise ValueError("the posteriors differ in length, or some have a precision and some do not")
        for start in range(0, size, _BLOCK):
            part = slice(start, start + _BLOCK)
            sums.add(part, weight, posterior.mean[part], posterior.precision[part] if has_precision else None)
    return sums.finish(has_precision)
