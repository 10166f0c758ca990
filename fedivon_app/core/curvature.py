"""What a learned hessian begins with and is measured by: numbers of flat vectors.

No curvature is measured before round 1. At the first weights it is far below what it becomes, and
a posterior and a rate that hang on it do not learn; so IVON begins at a width that its network
bears, and the rate follows the hessian as it is learned.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedivon_app.core.dense import Dense
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.posterior import Posterior

QUANTILES = {"min": 0.0, "p1": 0.01, "p50": 0.5, "p99": 0.99, "max": 1.0}
FIRST_SHARE = 0.2  # of the weights' size: samples of a layer compute about what its mean does


def first_precision(weights: np.ndarray) -> float:
    """Return 1/sigma^2 of a first sigma of FIRST_SHARE times the weights' root mean square."""
    square = float(np.mean(np.square(weights, dtype=np.float64)))
    if not square:
        raise SettingsError(
            "client.hess_init is auto, which takes its measure from the network's first weights, "
            "and these are all 0: give it a number"
        )
    return 1 / (FIRST_SHARE**2 * square)


def typical_precision(precision: np.ndarray) -> float:
    """Return the harmonic mean, 1 / mean(1/s): one over the mean variance.

    A few weights of large precision do not move it.
    """
    return 1 / float(np.mean(np.reciprocal(precision, dtype=np.float64)))


def spread(posterior: Posterior, slices: Mapping[str, slice]) -> dict[str, dict[str, float]]:
    """Return quantiles of the precision over all weights (`all`), and in each tensor by its name.

    A point has none. Of a full covariance it is the precision that each weight has by itself.
    """
    if posterior.precision is None:
        return {}
    precision = 1 / posterior.variance if isinstance(posterior, Dense) else posterior.precision
    return {
        name: _quantiles(precision[place]) for name, place in {"all": slice(None), **slices}.items()
    }


def _quantiles(values: np.ndarray) -> dict[str, float]:
    found = np.quantile(values, list(QUANTILES.values()))
    return {name: float(f"{value:.6g}") for name, value in zip(QUANTILES, found, strict=True)}


def distance_in_sigmas(posterior: Posterior, mean: np.ndarray) -> float:
    """Return how far a mean lies from the posterior's own, in sigmas.

    It is the root mean square of (mean - m) sqrt(s) over all weights.
    """
    moved = mean - posterior.mean.astype(np.float64)
    moved *= np.sqrt(posterior.known_precision)
    return float(np.sqrt(np.mean(np.square(moved, out=moved))))
