"""The value that travels: a diagonal Gaussian posterior over the flat parameter vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedivon_app.core.errors import Fault, FaultKind


@dataclass(frozen=True, eq=False)
class Posterior:
    """A Gaussian N(mean, 1/precision), element-wise, as two flat float32 vectors.

    Without a precision it is a point.
    """

    mean: np.ndarray
    precision: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "precision"):
            value = getattr(self, name)
            if value is None and name == "precision":
                continue
            with np.errstate(over="ignore"):  # what is too large becomes infinite; `fault` says so
                array = np.ascontiguousarray(value, np.float32)
            if array.ndim != 1:
                raise ValueError(
                    f"a posterior's {name} is a flat vector; this one has shape {array.shape}"
                )
            object.__setattr__(self, name, array)
        if self.precision is not None and self.precision.shape != self.mean.shape:
            raise ValueError(
                "a posterior's mean and precision have one length, "
                f"not {len(self.mean)} and {len(self.precision)}"
            )

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def known_precision(self) -> np.ndarray:
        """Return the precision; a point, which has none, is a ValueError."""
        if self.precision is None:
            raise ValueError("a precision is needed here, and this posterior is a point")
        return self.precision

    @property
    def variance(self) -> np.ndarray:
        """Return 1/precision, which is zero for a point."""
        return np.zeros_like(self.mean) if self.precision is None else 1 / self.precision

    def precision_range(self) -> tuple[float, float]:
        """Return the smallest and the largest precision."""
        precision = self.known_precision
        return float(precision.min()), float(precision.max())

    def kl(self, other: Posterior) -> float:
        """Return the divergence KL(self || other).

        For self N(m, 1/s) and other N(n, 1/t) it is 0.5 sum [t/s - 1 - log(t/s) + t (m - n)^2].
        """
        if self.precision is None or other.precision is None:
            raise ValueError("the KL divergence needs a precision on both sides; a point has none")
        s = self.precision.astype(np.float64)
        t = other.precision.astype(np.float64)
        ratio = t / s
        distance = t * np.square(self.mean.astype(np.float64) - other.mean)
        return float(0.5 * np.sum(ratio - 1 - np.log(ratio) + distance))

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of the weights."""
        if self.precision is None:
            return self.mean.copy()
        noise = rng.standard_normal(len(self), np.float32)
        drawn: np.ndarray = self.mean + noise / np.sqrt(self.precision)
        return drawn

    def fault(self) -> Fault | None:
        """Return what makes this no posterior at all, or None.

        That is a number that is not finite, or a precision that is not positive.
        """
        if (fault := self.fault_of_numbers()) is not None:
            return fault
        if self.precision is not None and not (positive := self.precision > 0).all():
            count = positive.size - int(positive.sum())
            text = f"precision has {count} values that are not positive"
            return Fault(FaultKind.NOT_POSITIVE, text, where="precision")
        return None

    def fault_of_numbers(self) -> Fault | None:
        """Return the array whose numbers are not all finite, as a fault, or None."""
        for name, array in (("mean", self.mean), ("precision", self.precision)):
            if array is not None and not (finite := np.isfinite(array)).all():
                count = array.size - int(finite.sum())
                text = f"{name} has {count} values that are not finite"
                return Fault(FaultKind.NOT_FINITE, text, where=name)
        return None
