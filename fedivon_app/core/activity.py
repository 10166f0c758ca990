"""How much happens at each weight: what is known of a symbol before it is decoded.

The symbols of a weight's row and of its column say how large its own is likely to be: there are
silent neurons and busy ones, and inputs likewise. How large those of a row and of a column are is
told in octaves, ahead of the symbols.

Where steps were rounded at random, both sides know what was drawn: x steps became ceil(x - u), so
that a small x left a zero unless u was close to 0 or to 1.

Both together make up the class of a symbol (core/symbols.py), by whole numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import gcd

import numpy as np

from fedivon_app.core.tables import BadSymbols

LEVELS = 20  # of rows, and of weights: 0 is for silence, and from 1 on an octave each
COLUMN_LEVELS = 8  # of columns beside their matrix
_UNIT = 9  # the level of a row whose symbols have a mean size of 1
_USUAL = 4  # the level of a column that is as busy as its matrix
_LEAST = 16  # weights: fewer than that in a row or in a column do not pay for its level
_RUN = 128  # weights in a row, where nothing is known of rows and it comes out even
_CLOSE = 16  # octaves by which u is close to 0 or 1
_SILENT = -40  # as an octave: lower than any other, whatever is added
_LOWEST = 2 * _SILENT
_HIGHEST = LEVELS + COLUMN_LEVELS - _UNIT - _USUAL
_NEAR = np.float32(2.0**18)  # class 0 is where octave + closeness is below -3: u is that far off


@dataclass(frozen=True)
class Matrix:
    """A tensor's weights, row by row."""

    rows: int
    columns: int

    @property
    def tells_columns(self) -> bool:
        """Tell whether there are enough rows to speak of columns."""
        return self.rows >= _LEAST


def matrices_of(sizes: Sequence[int]) -> list[Matrix]:
    """Return the matrices that tensors of these sizes are, which follow each other.

    A layer's weights are followed by its biases, or by the scales of a norm: one for each row.
    """
    matrices = []
    for size, following in pairwise([*sizes, 0]):
        if size:
            fits = 0 < following < size and size % following == 0
            columns = size // following if fits else gcd(size, _RUN)
            columns = columns if columns >= (_LEAST if fits else _RUN) else size
            matrices.append(Matrix(size // columns, columns))
    return matrices


@dataclass(frozen=True, eq=False)
class Activity:
    """The levels of all rows of matrices, and of the columns of those that tell of columns."""

    matrices: Sequence[Matrix]
    rows: np.ndarray
    columns: np.ndarray

    @classmethod
    def silent(cls, matrices: Sequence[Matrix]) -> Activity:
        """Return that nothing happens; what does can be written to it."""
        rows = sum(matrix.rows for matrix in matrices)
        columns = sum(matrix.columns for matrix in matrices if matrix.tells_columns)
        return cls(matrices, np.zeros(rows, np.int32), np.zeros(columns, np.int32))

    @classmethod
    def of(cls, symbols: np.ndarray, matrices: Sequence[Matrix]) -> Activity:
        """Return what happens among these symbols."""
        found = cls.silent(matrices)
        for part in found._parts(np.abs(symbols)):
            sums = part.weights.sum(1, dtype=np.int64)
            part.rows[:] = _levels(sums / part.weights.shape[1], _UNIT, LEVELS)
            if len(part.columns):
                sums = part.weights.sum(0, dtype=np.int64)
                part.columns[:] = _levels(sums / max(sums.mean(), 1e-9), _USUAL, COLUMN_LEVELS)
        return found

    @property
    def told(self) -> list[np.ndarray]:
        """Return the levels in the order of the wire."""
        return [levels for levels in (self.rows, self.columns) if len(levels)]

    def check(self) -> None:
        """Raise BadSymbols for levels that there are not."""
        for levels, most in ((self.rows, LEVELS), (self.columns, COLUMN_LEVELS)):
            if not 0 <= levels.min(initial=0) <= levels.max(initial=0) < most:
                raise BadSymbols("a row or a column has a level of activity that there is not")

    def busy(self, drawn: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of symbols that are not of class 0, and the class of each.

        Of class 0 are those of which hardly any is not zero. What was drawn for a symbol, if that
        is known, tells it too: a step of 2**octave is then one of 2**(octave + closeness).
        """
        size = sum(one.rows * one.columns for one in self.matrices)
        reach = np.empty(size, np.float32)  # 2**octave
        rows = _powers(_UNIT, LEVELS).take(self.rows)
        columns = _powers(_USUAL, COLUMN_LEVELS).take(self.columns)
        for part in replace(self, rows=rows, columns=columns)._parts(reach):
            if len(part.columns):
                np.multiply(part.rows[:, None], part.columns, out=part.weights)
            else:
                part.weights[:] = part.rows[:, None]
        if drawn is None:
            places = np.flatnonzero(reach > 2.0**-_UNIT)
            return places, _classes_by_octave().take(_octave_of(reach[places]) - _LOWEST)
        distance = np.minimum(drawn, ~drawn) + np.float32(0.5)  # of u from 0 or 1, in 2**-16
        reach *= _NEAR
        places = np.flatnonzero(distance < reach)
        kinds = _octave_of(reach[places] / _NEAR) - _LOWEST
        kinds *= _CLOSE
        kinds += _closeness().take(drawn[places])
        return places, _classes_by_octave_and_closeness().take(kinds)

    def _parts(self, weights: np.ndarray) -> Iterator[_Part]:
        first = row = column = 0
        for matrix in self.matrices:
            shape = (matrix.rows, matrix.columns)
            told = matrix.columns if matrix.tells_columns else 0
            yield _Part(
                weights=weights[first : first + matrix.rows * matrix.columns].reshape(shape),
                rows=self.rows[row : row + matrix.rows],
                columns=self.columns[column : column + told],
            )
            first += matrix.rows * matrix.columns
            row += matrix.rows
            column += told


@dataclass(frozen=True, eq=False)
class _Part:
    """What belongs to one matrix; it has no columns where they are not told."""

    weights: np.ndarray
    rows: np.ndarray
    columns: np.ndarray


def _levels(sizes: np.ndarray, unit: int, count: int) -> np.ndarray:
    """Return numbers in octaves, of which 1 has this level, and 0 for 0."""
    octaves = np.rint(np.log2(np.maximum(sizes, 1e-9))) + unit
    found: np.ndarray = np.where(sizes > 0, np.clip(octaves, 1, count - 1), 0)
    return found


def _powers(unit: int, count: int) -> np.ndarray:
    """Return 2**octave of each level; that of silence is lower than any product of others."""
    octaves = np.arange(count) - unit
    octaves[0] = _SILENT
    return np.ldexp(np.float32(1), octaves)


def _octave_of(powers: np.ndarray) -> np.ndarray:
    """Return the exponents of powers of two in float32, by their bits."""
    octaves: np.ndarray = (powers.view(np.int32) >> 23) - np.int32(127)
    return octaves


@cache
def _closeness() -> np.ndarray:
    """Return for each u, in 2**16 equal parts, how close it is to 0 or 1, in octaves from 1/2."""
    close = 15 - np.frexp(np.arange(1 << 15))[1]
    return np.concatenate([close, close[::-1]]).astype(np.int16)


@cache
def _classes_by_octave() -> np.ndarray:
    """Return the class of each octave from _LOWEST on, or of two where symbols are large."""
    octaves = np.arange(_LOWEST, _HIGHEST + 1)
    classes = np.where(octaves > 0, (octaves + 1) // 2, np.maximum(octaves, -_UNIT)) + _UNIT
    return classes.astype(np.uint8)


@cache
def _classes_by_octave_and_closeness() -> np.ndarray:
    """Return the class of each octave, and in it of each closeness.

    Where steps are small it is their product that counts, 2**(octave + closeness): it tells which
    of the symbols, of which nearly all are zero, may be others.
    """
    found = []
    classes = {("small", -3, 0): 0}
    for octave in range(_LOWEST, _HIGHEST + 1):
        for close in range(_CLOSE):
            if octave >= -1:
                kind = ("large", min(octave, 3), min(close, 2) if octave < 2 else 0)
            else:
                kind = ("small", min(max(octave + close + 1, -3), 3), 0)
            found.append(classes.setdefault(kind, len(classes)))
    return np.array(found, np.uint8)
