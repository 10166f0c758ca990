"""What a merge by precisions makes of the means, beside the plain average that FedAvg has."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedivon_app.core.curvature import distance_in_sigmas
from fedivon_app.core.posterior import Posterior


def shift_from_average(
    merged: Posterior, posteriors: Iterable[Posterior], weights: np.ndarray
) -> float:
    """Return how far the weighted average of the means lies from the merged mean, in sigmas.

    It is 0 where all clients claim the same precisions: there a product is an average.
    """
    average = np.zeros(len(merged))
    for weight, posterior in zip(weights.tolist(), posteriors, strict=True):
        average += np.multiply(posterior.mean, weight, dtype=np.float64)
    return distance_in_sigmas(merged, average)
