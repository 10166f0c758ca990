"""The value that travels: a diagonal Gaussian posterior over the flat parameter vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Posterior:
    """N(mean, 1/precision), element-wise, as flat float32 vectors; without a precision it is a point."""

    mean: np.ndarray
    precision: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "precision"):
            value = getattr(self, name)
            if value is None and name == "precision":
                continue
            with np.errstate(
                over="ignore"
            ):  # what is too large for float32 becomes infinite, and `fault` says so
                array = np.ascontiguousarray(value, np.float32)
            if array.ndim != 1:
                raise ValueError(
                    f"a posterior's {name} is a flat vector; this one has shape {array.shape}"
                )
            object.__setattr__(self, name, array)
        if self.precision is not None and self.precision.shape != self.mean.shape:
            raise ValueError(
                f"a posterior's mean and precision have one length, not {len(self.mean)} and {len(self.precision)}"
            )

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def variance(self) -> np.ndarray:
        """1/precision; zero for a point."""
        return np.zeros_like(self.mean) if self.precision is None else 1 / self.precision

    def precision_range(self) -> tuple[float, float]:
        """The smallest and the largest."""
        return float(self.precision.min()), float(self.precision.max())

    def kl(self, other: Posterior) -> float:
        """KL(self || other) = 0.5 sum [ t/s - 1 - log(t/s) + t (m - n)^2 ], for self N(m, 1/s) and other N(n, 1/t)."""
        if self.precision is None or other.precision is None:
            raise ValueError("the KL divergence needs a precision on both sides; a point has none")
        s = self.precision.astype(np.float64)
        t = other.precision.astype(np.float64)
        ratio = t / s
        return float(
            0.5
            * np.sum(
                ratio - 1 - np.log(ratio) + t * np.square(self.mean.astype(np.float64) - other.mean)
            )
        )

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """One draw of the weights."""
        if self.precision is None:
            return self.mean.copy()
        return self.mean + rng.standard_normal(len(self), np.float32) / np.sqrt(self.precision)

    def fault(self) -> str | None:
        """What makes this no posterior at all (not finite, or a precision that is not positive), or None."""
        for name, array in (("mean", self.mean), ("precision", self.precision)):
            if array is not None and not (finite := np.isfinite(array)).all():
                return f"{name} has {array.size - int(finite.sum())} values that are not finite"
        if self.precision is not None and not (positive := self.precision > 0).all():
            return (
                f"precision has {positive.size - int(positive.sum())} values that are not positive"
            )
        return None
