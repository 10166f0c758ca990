"""What noise costs in privacy: Renyi differential privacy of the subsampled Gaussian mechanism.

A step takes each example with probability q, clips its gradient to C and adds N(0, (z C)^2). Two
data sets that differ by one example, which one has and the other has not, can then be told apart by
at most the Renyi divergence of order a between (1-q) N(0, z^2) + q N(1, z^2) and N(0, z^2),

    log A(a) / (a - 1),   A(a) = E_{x ~ N(0, z^2)} [ (1 - q + q exp((2x - 1) / (2 z^2)))^a ]

(Mironov, Talwar and Zhang 2019). Left and right of where the two terms of the bracket are equal it
is a binomial series in the smaller one, of which every term is taken as positive: at whole orders
they are, and at others A is bounded from above. The costs of steps add up, order by order, so that
what has been spent is a vector over ORDERS. The guarantee (epsilon, delta) follows from it by
Canonne, Kamath and Steinke 2020, Proposition 12, and the best order is taken.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, log, sqrt

import numpy as np
from scipy.special import gammaln, log_ndtr

ORDERS = np.array(
    [
        *(1 + k / 10 for k in range(1, 41)),
        *(5 + k / 2 for k in range(1, 12)),
        *range(11, 24),
        *range(24, 64, 3),
        *(128, 256, 512),
    ]
)
NO_COST = np.zeros_like(ORDERS)

_TERMS = 600  # of a series, which has come to its end before if its order is whole
_REST = 30.0  # e-folds by which the last term must lie below the sum
_ROUNDING = 1e-12  # added to log A, which is computed with a smaller error
_MOST_NOISE = 1e6  # of the multipliers that are looked among


def step_cost(noise_multiplier: float, rate: float) -> np.ndarray:
    """Return the cost of one step over ORDERS; it is infinite without noise."""
    if not 0 < rate <= 1:
        raise ValueError(f"the sampling rate is {rate}; it lies above 0 and is at most 1")
    if noise_multiplier <= 0:
        return np.full_like(ORDERS, inf)
    if rate == 1:
        return ORDERS / (2 * noise_multiplier**2)
    return _subsampled(noise_multiplier, rate).copy()


def pure_cost(epsilon: float) -> np.ndarray:
    """Return the cost of a release that is epsilon-private with delta 0, such as a noisy count.

    It is at most a epsilon^2/2 (Bun and Steinke 2016, Proposition 3.3) and at most epsilon.
    """
    return np.minimum(ORDERS * epsilon**2 / 2, epsilon)


def epsilon_of(cost: np.ndarray, delta: float) -> float:
    """Return the epsilon that a cost comes to at this delta."""
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; it lies between 0 and 1")
    if not cost.any():
        return 0.0
    found = cost + np.log1p(-1 / ORDERS) - (log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return max(float(found.min()), 0.0)


def noise_for(
    epsilon: float, delta: float, *, rate: float, steps: int, before: np.ndarray = NO_COST
) -> float:
    """Return the smallest noise multiplier with which so many steps cost at most epsilon.

    `before` is what has been spent on other things. It is within a thousandth of the smallest.
    """

    def is_enough(noise: float) -> bool:
        return epsilon_of(before + steps * step_cost(noise, rate), delta) <= epsilon

    if not is_enough(_MOST_NOISE):
        raise ValueError(
            f"no noise is large enough for epsilon {epsilon:g} at delta {delta:g}: "
            f"{epsilon_of(before, delta):.3g} is spent before the first step"
        )
    low = 0.1
    high = _MOST_NOISE
    while high / low > 1.001:
        middle = sqrt(low * high)
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=256)
def _subsampled(noise: float, rate: float) -> np.ndarray:
    """Return log A / (a - 1) at all orders; it is infinite where the series has not converged.

    A(a) is the sum over i of |binomial(a, i)| times q^i (1-q)^(a-i) exp((i^2 - i) / (2 z^2)) times
    the chance that N(i, z^2) lies left of the middle, and the same with i and a - i exchanged,
    right of it.
    """
    order = ORDERS[:, None]
    i = np.arange(_TERMS)
    j = order - i
    middle = noise**2 * log(1 / rate - 1) + 0.5
    with np.errstate(invalid="ignore"):
        ways = gammaln(order + 1) - gammaln(i + 1) - gammaln(j + 1)
    left = i * log(rate) + j * np.log1p(-rate) + _moment(i, noise)
    right = j * log(rate) + i * np.log1p(-rate) + _moment(j, noise)
    terms = ways + np.logaddexp(
        left + log_ndtr((middle - i) / noise), right + log_ndtr((j - middle) / noise)
    )
    total = np.logaddexp.reduce(terms, axis=1)
    settled = terms[:, -1] < total - _REST
    costs: np.ndarray = np.where(settled, np.maximum(total, 0.0) + _ROUNDING, inf) / (ORDERS - 1)
    return costs


def _moment(k: np.ndarray, noise: float) -> np.ndarray:
    """Return the logarithm of E[exp((2x - 1) / (2 z^2))^k]."""
    logarithm: np.ndarray = (k * k - k) / (2 * noise**2)
    return logarithm
