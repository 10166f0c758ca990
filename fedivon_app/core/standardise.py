"""Standardisation over all clients: z = (x - mean) / deviation, column by column.

Mean and deviation follow from sums that every client has of its own rows. The sums of a client are
one vector, and the server needs nothing but the sum of these vectors: whoever can add them without
seeing them, as secure aggregation does, may do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from fedivon_app.core.errors import DataError

FLAT = 1e-12  # a variance below this share of the mean square is that of a column with one value


class Standard(BaseModel):
    """The mean and the deviation of every feature, or of every channel of pictures.

    A regression has those of its target too, `target_mean` and `target_deviation`, and of features
    none where these are taken as they are.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    target_mean: float = 0.0
    target_deviation: float = 1.0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.mean) != len(self.deviation):
            raise ValueError(f"{len(self.mean)} means, but {len(self.deviation)} deviations")
        if min((*self.deviation, self.target_deviation)) <= 0:
            raise ValueError("a deviation must be above 0")
        return self

    def apply(self, inputs: np.ndarray) -> np.ndarray:
        """Return inputs standardised, as a network takes them: rows of features, or pictures."""
        return self._rows(inputs) if inputs.ndim < 3 else self._pictures(inputs)

    def _pictures(self, pictures: np.ndarray) -> np.ndarray:
        """Return (N, H, W) or (N, H, W, C) as (N, C, H, W); bytes are taken as 0 to 1."""
        whole = pictures[..., np.newaxis] if pictures.ndim == 3 else pictures
        if (channels := whole.shape[-1]) != len(self.mean):
            raise DataError(
                f"pictures of {channels} channels cannot be standardised: mean and deviation are "
                f"known of {len(self.mean)}."
            )
        floats = np.array(np.moveaxis(whole, -1, 1), dtype=np.float32, order="C")
        unit = 255 if whole.dtype == np.uint8 else 1
        floats -= _by_channel(self.mean) * unit
        floats /= _by_channel(self.deviation) * unit
        return floats

    def _rows(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of features, (N, D), standardised; a missing value becomes the mean, 0."""
        if rows.shape[1:] != (len(self.mean),):
            raise DataError(
                f"inputs of shape {rows.shape[1:]} cannot be standardised: mean and deviation are "
                f"known of {len(self.mean)} features."
            )
        centred = (rows - np.array(self.mean)) / np.array(self.deviation)
        known: np.ndarray = np.where(np.isnan(centred), 0.0, centred)
        return known.astype(np.float32)


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """Sums over the rows that somebody has: of each column its values, their squares and how many.

    What is NaN is missing and counts in none of them; `rows` counts all rows, and `labels` those of
    each class.
    """

    count: np.ndarray
    total: np.ndarray
    squares: np.ndarray
    rows: float
    labels: np.ndarray

    @classmethod
    def of(
        cls, columns: np.ndarray, labels: np.ndarray | None = None, num_classes: int = 0
    ) -> ColumnSums:
        """Return the sums of (N, D) columns, and of the (N,) labels how many each class has."""
        values = np.asarray(columns, np.float64)
        return cls(
            count=(~np.isnan(values)).sum(axis=0).astype(np.float64),
            total=np.nansum(values, axis=0),
            squares=np.nansum(np.square(values), axis=0),
            rows=float(len(values)),
            labels=np.array([np.sum(labels == number) for number in range(num_classes)], float),
        )

    @property
    def vector(self) -> np.ndarray:
        """Return everything as one vector, which may be added to others'."""
        rows = np.array([self.rows])
        return np.concatenate([self.labels, self.count, self.total, self.squares, rows])

    @classmethod
    def from_vector(cls, vector: np.ndarray, num_classes: int = 0) -> ColumnSums:
        """Return the sums that a vector, or a sum of vectors, stands for."""
        columns = np.asarray(vector[num_classes:-1], np.float64)
        count, total, squares = np.split(columns, 3)
        return cls(
            count=count,
            total=total,
            squares=squares,
            rows=float(vector[-1]),
            labels=np.asarray(vector[:num_classes], np.float64),
        )

    @property
    def balanced_weights(self) -> tuple[float, ...]:
        """Return N / (C n_c) of every class c; 0 of one that nobody has."""
        with np.errstate(divide="ignore"):
            weights = self.labels.sum() / (len(self.labels) * self.labels)
        return tuple(np.where(self.labels > 0, weights, 0.0).tolist())

    @property
    def missing(self) -> np.ndarray:
        """Return how many values of each column are missing."""
        return self.rows - self.count

    def standard(
        self, names: Sequence[str], is_number: np.ndarray, target: bool = False
    ) -> Standard:
        """Return mean and deviation of every feature.

        Features that are no numbers, but 0 or 1, stay as they are. With `target` the last column is
        that. A column in which nobody has a value, or all the same one, is a DataError.
        """
        kept = np.concatenate([is_number, np.ones(int(target), bool)])
        for place in np.flatnonzero(kept & (self.count == 0)).tolist():
            raise DataError(f"no client has a value in the column {names[place]!r}: leave it out")
        mean = self.total / np.maximum(self.count, 1)
        square = self.squares / np.maximum(self.count, 1)
        variance = np.maximum(square - np.square(mean), 0)
        for place in np.flatnonzero(kept & (variance <= FLAT * square)).tolist():
            raise DataError(
                f"the column {names[place]!r} has one value, {mean[place]:g}, at all clients, from "
                "which nothing is learned: leave it out"
            )
        mean = np.where(kept, mean, 0.0)
        deviation = np.where(kept, np.sqrt(variance), 1.0)
        size = len(is_number)
        standard = Standard(
            mean=tuple(mean[:size].tolist()), deviation=tuple(deviation[:size].tolist())
        )
        if not target:
            return standard
        return standard.model_copy(
            update={"target_mean": float(mean[size]), "target_deviation": float(deviation[size])}
        )


def _by_channel(values: tuple[float, ...]) -> np.ndarray:
    return np.array(values, np.float32).reshape(-1, 1, 1)
