"""What tallies have in common: sums over examples that travel as plain numbers and add up."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

OWN = "score."  # stands before the names of further sums in a tally's dictionary


class Pooled:
    """Sums over any number of examples; an instance without arguments is the sum over none.

    `SUMMED` are the fields that every score may use, numbers or vectors, and `sums` further ones by
    the names of the scores that need them.
    """

    SUMMED: ClassVar[tuple[str, ...]]
    count: float
    sums: Mapping[str, np.ndarray]

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        own = {name: getattr(self, name) + getattr(other, name) for name in self.SUMMED}
        if not self.count or not other.count:
            sums = dict(self.sums if self.count else other.sums)
        else:
            sums = {
                name: own_sums + other.sums[name]
                for name, own_sums in self.sums.items()
                if name in other.sums and other.sums[name].shape == own_sums.shape
            }
        return self._made(own, sums)

    def to_dict(self) -> dict[str, float | list[float]]:
        """Return plain numbers and lists by name, fit for a Flower MetricRecord and for JSON."""
        values: dict[str, float | list[float]] = {}
        for name in self.SUMMED:
            value = getattr(self, name)
            values[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return values | {f"{OWN}{name}": sums.tolist() for name, sums in self.sums.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, float | Sequence[float]]) -> Self:
        """Return the inverse of `to_dict`.

        Other keys are left alone, and a tally that cannot be one is a ValueError.
        """
        parts: dict[str, Any] = {}
        empty = cls()
        for name in cls.SUMMED:
            if name not in values:
                raise ValueError(f"a tally needs {name!r}")
            expected = np.shape(getattr(empty, name))
            value = np.asarray(values[name], dtype=np.float64)
            if value.shape != expected:
                raise ValueError(f"the tally's {name!r} has shape {value.shape}, not {expected}")
            if not np.isfinite(value).all() or (name not in cls.signed() and (value < 0).any()):
                raise ValueError(f"the tally's {name!r} must be finite and not negative: {value}")
            parts[name] = value if expected else float(value)
        own = {
            key.removeprefix(OWN): np.asarray(value, dtype=np.float64).reshape(-1)
            for key, value in values.items()
            if key.startswith(OWN)
        }
        for name, sums in own.items():
            if not np.isfinite(sums).all():
                raise ValueError(f"the tally's sums of the score {name!r} are not finite: {sums}")
        tally = cls._made(parts, own)
        tally._check()
        return tally

    @classmethod
    def _made(cls, parts: Mapping[str, Any], sums: Mapping[str, np.ndarray]) -> Self:
        """Return the tally of these fields: whoever inherits is a dataclass."""
        make: Any = cls
        tally: Self = make(**parts, sums=sums)
        return tally

    @property
    @abstractmethod
    def nll(self) -> float:
        """Return the mean of -log p of what is true."""

    @classmethod
    def signed(cls) -> tuple[str, ...]:
        """Return the sums that may be negative."""
        return ()

    def _check(self) -> None:
        """Raise a ValueError for sums that cannot belong together."""
