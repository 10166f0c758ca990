"""What every source of data and every rule of partition has in common."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral, Real

import numpy as np


class DataError(ValueError):
    """A complaint about data: one line that names the data set or the file, the fault and what would be right."""


@dataclass(frozen=True, eq=False)
class Source:
    """A data set with its own train and test part; the two are never pooled.

    x is uint8 (N, H, W) or (N, H, W, C) for pictures, float32 (N, D) for tables; y is int64 (N,).
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int
    class_names: tuple[str, ...] | None = None
    subclass_train: np.ndarray | None = None  # fine labels where y is the superclass
    subclass_test: np.ndarray | None = None
    owner_train: np.ndarray | None = (
        None  # client of each row where the source comes already divided
    )
    owner_test: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input: (H, W, C) or (D,)."""
        shape = tuple(self.x_train.shape[1:])
        return (*shape, 1) if len(shape) == 2 else shape


def suggestion(word: object, known: Iterable[str]) -> str:
    """The end of a complaint about an unknown name: the nearest known one, and all of them."""
    names = sorted(known)
    close = get_close_matches(str(word), names, n=1)
    listed = f"known: {', '.join(names)}" if names else "there are none"
    return f"did you mean {close[0]!r}? ({listed})" if close else f"{listed}."


def whole_number(value: object, what: str, least: int) -> int:
    """The value if it is a whole number of at least `least`; else a complaint about `what`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise DataError(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return int(value)


def real_number(
    value: object, what: str, above: float = 0.0, upto: float = np.inf, *, zero: bool = False
) -> float:
    """The value if it is a finite number in (above, upto], or [above, upto] with `zero`; else a complaint."""
    number = isinstance(value, Real) and not isinstance(value, bool) and np.isfinite(value)
    if not number or not (above < value <= upto or (zero and value == above)):
        bounds = f"{'at least' if zero else 'above'} {above:g}" + (
            f" and at most {upto:g}" if upto < np.inf else ""
        )
        raise DataError(f"{what} must be a number {bounds}, not {value!r}.")
    return float(value)
