"""What every source of data and every rule of partition has in common."""

from __future__ import annotations

import math
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedivon_app.core.errors import DataError, UserError
from fedivon_app.core.text import did_you_mean, one_line

if TYPE_CHECKING:
    from fedivon_app.datasets.table_format import TableFormat

SUBSETS = ("train", "test")
FIELDS = tuple(
    f"{kind}_{subset}" for kind in ("x", "y", "subclass", "owner") for subset in SUBSETS
)  # the arrays that a source may have


@dataclass(frozen=True, eq=False)
class Source:
    """A data set with its own train and test part; the two are never pooled.

    x is uint8 (N, H, W) or (N, H, W, C) for pictures, float32 (N, D) for tables; y is int64 (N,).
    `subclass_*` are fine labels where y is the superclass; `owner_*` is the client of each row
    where the source comes already divided, and `client_names` are these by number. Of a table, x
    has NaN where a value is missing, and `table` says what the columns mean. A number that is to be
    predicted is float32, and there are 0 classes.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int
    class_names: tuple[str, ...] | None = None
    subclass_train: np.ndarray | None = None
    subclass_test: np.ndarray | None = None
    owner_train: np.ndarray | None = None
    owner_test: np.ndarray | None = None
    client_names: tuple[str, ...] | None = None
    table: TableFormat | None = None

    @classmethod
    def of(
        cls,
        name: str,
        arrays: Mapping[str, np.ndarray],
        num_classes: int,
        class_names: tuple[str, ...] | None = None,
        client_names: tuple[str, ...] | None = None,
        table: TableFormat | None = None,
    ) -> Source:
        """Make a source of arrays by name: the four that must be there, and what is of others."""
        return cls(
            name=name,
            x_train=arrays["x_train"],
            y_train=arrays["y_train"],
            x_test=arrays["x_test"],
            y_test=arrays["y_test"],
            num_classes=num_classes,
            class_names=class_names,
            subclass_train=arrays.get("subclass_train"),
            subclass_test=arrays.get("subclass_test"),
            owner_train=arrays.get("owner_train"),
            owner_test=arrays.get("owner_test"),
            client_names=client_names,
            table=table,
        )

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that the source has, by their names in FIELDS."""
        return {field: array for field in FIELDS if (array := getattr(self, field)) is not None}

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one input: (H, W, C) or (D,)."""
        shape = tuple(self.x_train.shape[1:])
        return (*shape, 1) if len(shape) == 2 else shape


def whole_number(value: object, what: str, least: int) -> int:
    """Return the value if it is a whole number of at least `least`; else complain about `what`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise DataError(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return int(value)


def real_number(
    value: object, what: str, above: float = 0.0, upto: float = math.inf, *, zero: bool = False
) -> float:
    """Return the value if it is a finite number in (above, upto]; else complain about `what`.

    With `zero` the lower bound itself is allowed too.
    """
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
    inside = above < number <= upto or (zero and number == above)
    if not (math.isfinite(number) and inside):
        bounds = f"{'at least' if zero else 'above'} {above:g}"
        bounds += f" and at most {upto:g}" if upto < math.inf else ""
        raise DataError(f"{what} must be a number {bounds}, not {value!r}.")
    return number


def no_option(what: str, option: str, known: Collection[str]) -> DataError:
    """Return the complaint about an unknown option: the nearest known one, and all of them."""
    hint = did_you_mean(option, known)
    listed = ", ".join(sorted(known))
    options = "" if listed in hint else f" (its options: {listed})"
    return DataError(f"{what} has no option {option!r}: {hint}{options}")


@contextmanager
def blamed_on(what: str) -> Iterator[None]:
    """Turn whatever the user's own code raises into a DataError that names it and the line.

    Errors that are written for people pass as they are.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        text = one_line(error)
        kind = type(error).__name__
        place = _line_outside(error)
        raise DataError(f"{what} failed{place}: {kind}{f': {text}' if text else ''}") from error


def _line_outside(error: Exception) -> str:
    """The first line on the way to an error that is not of this folder."""
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).parent != Path(__file__).parent:
            return f" in {Path(frame.filename).name}, line {frame.lineno}"
    return ""
