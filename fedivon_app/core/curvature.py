"""What a learned hessian begins with and is measured by: numbers of flat vectors.

No curvature is measured before round 1. At the first weights it is far below what it becomes, and
a posterior and a rate that hang on it do not learn; so IVON begins at a width that its network
bears, and the rate follows the hessian as it is learned.
"""

from __future__ import annotations

import numpy as np

from fedivon_app.core.errors import SettingsError

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
