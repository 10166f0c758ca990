"""Scores of predicted numbers: NLL, RMSE, CRPS, and how often intervals hold what they promise.

What is predicted of a number is a Gaussian. Over weight samples it is the Gaussian with the mean
and the variance of their mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.special import erf, erfinv

from fedivon_app.core.tally import Pooled

LEVELS = tuple((np.arange(1, 20) / 20).tolist())  # of central intervals, 5 % to 95 %


def gaussian_nll(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return -log N(y; mean, variance)."""
    result: np.ndarray = 0.5 * (np.log(2 * np.pi * variance) + np.square(y - mean) / variance)
    return result


def gaussian_crps(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the continuous ranked probability score of a Gaussian (Gneiting and Raftery 2007).

    With w = (y - mean) / sigma it is sigma (w (2 Phi(w) - 1) + 2 phi(w) - 1/sqrt(pi)).
    """
    sigma = np.sqrt(variance)
    w = (y - mean) / sigma
    density = np.exp(-0.5 * np.square(w)) / np.sqrt(2 * np.pi)
    result: np.ndarray = sigma * (w * erf(w / np.sqrt(2)) + 2 * density - 1 / np.sqrt(np.pi))
    return result


def _zero_levels() -> np.ndarray:
    return np.zeros(len(LEVELS))


@dataclass(frozen=True, eq=False)
class NumberTally(Pooled):
    """Sums over any number of examples, from which the scores of predicted numbers follow.

    `covered` counts for each of LEVELS how many numbers lie in the central interval of that
    probability.
    """

    SUMMED: ClassVar[tuple[str, ...]] = ("count", "nll_sum", "squared_sum", "crps_sum", "covered")

    count: float = 0.0
    nll_sum: float = 0.0
    squared_sum: float = 0.0
    crps_sum: float = 0.0
    covered: np.ndarray = field(default_factory=_zero_levels)
    sums: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        mean: np.ndarray,
        variance: np.ndarray,
        truth: np.ndarray,
        sums: Mapping[str, np.ndarray] | None = None,
    ) -> NumberTally:
        """Return the tally of Gaussians, given by mean and variance, against the true numbers."""
        y = np.asarray(truth, np.float64)
        if not len(y) == len(mean) == len(variance) or not len(y):
            raise ValueError(f"{len(mean)} predictions do not fit {len(y)} numbers")
        if not (np.isfinite(mean).all() and (variance > 0).all() and np.isfinite(variance).all()):
            raise ValueError("a predicted mean is not finite, or a variance not positive")
        away = np.abs(y - mean) / np.sqrt(variance)
        edges = np.sqrt(2) * erfinv(np.array(LEVELS))
        return cls(
            count=float(len(y)),
            nll_sum=float(gaussian_nll(y, mean, variance).sum()),
            squared_sum=float(np.square(y - mean).sum()),
            crps_sum=float(gaussian_crps(y, mean, variance).sum()),
            covered=(away[:, None] <= edges).sum(axis=0).astype(np.float64),
            sums=dict(sums or {}),
        )

    @property
    def nll(self) -> float:
        """Return the mean of -log p(y)."""
        return self.nll_sum / self.count

    @property
    def rmse(self) -> float:
        """Return the root of the mean squared error."""
        return float(np.sqrt(self.squared_sum / self.count))

    @property
    def crps(self) -> float:
        """Return the mean CRPS, in the units of the number."""
        return self.crps_sum / self.count

    @property
    def coverage(self) -> np.ndarray:
        """Return the share of the numbers in the central interval of each of LEVELS."""
        return np.asarray(self.covered / self.count)

    @property
    def coverage_error(self) -> float:
        """Return by how much the coverage differs from its level, in the mean over LEVELS."""
        return float(np.abs(self.coverage - np.array(LEVELS)).mean())

    @classmethod
    def signed(cls) -> tuple[str, ...]:
        """Return the sum of -log p(y), for a density may be above 1."""
        return ("nll_sum",)

    def _check(self) -> None:
        if (np.diff(self.covered) < 0).any() or (self.covered > self.count).any():
            raise ValueError("the tally's intervals hold more than wider ones, or than there are")
