"""Symbols through a range coder, each part of them with a table of how often they occur.

A table tells the share of each symbol in quarters of an octave, and travels ahead of the symbols.
Where nearly all are zero, it is the gaps between the others that are coded: they are fewer.

What a call of the coder costs counts for more than what a symbol does, so that the same kind of
thing goes in one call for all parts: the ends of the tables, their levels, the numbers of gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import fsum, sqrt

import numpy as np
from constriction import stream  # type: ignore[import-untyped]

REACH = 512  # symbols are less than this, and not less than its negative
_STEPS = 4  # of a table, in an octave
_LEVELS = 32 * _STEPS  # more than any count needs
_ROOTS = (1.0, sqrt(sqrt(2)), sqrt(2), sqrt(2) * sqrt(sqrt(2)))  # the same on all machines
_WEIGHTS = np.array([0.0] + [_ROOTS[n % _STEPS] * 2.0 ** (n // _STEPS) for n in range(_LEVELS)])
_SHRINK = np.cumprod(np.full(_LEVELS, 0.8))  # how rare larger differences of neighbours are
_LEVEL_MODEL = stream.model.Categorical(
    np.concatenate([_SHRINK[::-1], [2.0], _SHRINK]), perfect=False
)
_END_MODEL = stream.model.Uniform(2 * REACH)
_DIGITS_MODEL = stream.model.Uniform(64)
_DIGIT_MODEL = stream.model.Uniform(2)
_GAP = 255  # zeros that a gap may have; a longer one goes on in the next
_SPARSE = 0.7  # the share of zeros from which on gaps are coded
_RARITIES = _WEIGHTS[1:-1] * sqrt(_ROOTS[1])  # where to round 1 / share in quarters of an octave
_ONE = np.ones(1, np.int32)


class BadSymbols(ValueError):
    """Bytes that no encoder made."""


def encode_parts(
    encoder: stream.queue.RangeEncoder, symbols: np.ndarray, ends: Sequence[int]
) -> None:
    """Append the parts that end here, of which none is empty, each with its own table."""
    places = np.flatnonzero(symbols != 0)  # faster than without the comparison
    values = symbols[places].astype(np.int32)
    cuts = [0, *np.searchsorted(places, ends).tolist()]
    tables = _tables(values, cuts=cuts, ends=ends)
    told = [end for table in tables for end in (table.first, table.first + len(table.levels) - 1)]
    encoder.encode(np.array(told, np.int32) + REACH, _END_MODEL)
    levels = [table.levels for table in tables if len(table.levels) > 1]
    if levels:
        steps = np.concatenate(levels)
        steps[1:] -= steps[:-1].copy()
        encoder.encode(steps + _LEVELS, _LEVEL_MODEL)
    parts = list(zip(tables, pairwise([0, *ends]), pairwise(cuts), strict=True))
    gaps = [
        _gaps(places[begin:after] - first)
        for table, (first, _), (begin, after) in parts
        if table.sparse
    ]
    encode_numbers(encoder, [len(one) for one in gaps])
    own = iter(gaps)
    for table, (first, last), (begin, after) in parts:
        if table.sparse:
            encoder.encode(next(own), table.gap_model())
            encoder.encode(values[begin:after] - np.int32(table.first), table.model())
        elif len(table.levels) > 1:
            encoder.encode(symbols[first:last] - np.int32(table.first), table.model())


def _tables(values: np.ndarray, cuts: Sequence[int], ends: Sequence[int]) -> list[_Table]:
    """Return the table of each part, from those of its symbols that are not zero."""
    counted = np.diff(cuts)
    sizes = np.diff([0, *ends])
    keys = np.repeat(np.arange(len(ends)) * (2 * REACH) + REACH, counted)
    keys += values
    counts = np.bincount(keys, minlength=len(ends) * 2 * REACH).reshape(-1, 2 * REACH)
    counts[:, REACH] = sizes - counted
    levels = np.zeros(counts.shape, np.int32)
    seen = counts > 0
    levels[seen] = 1 + np.rint(_STEPS * np.log2(counts[seen]))
    first = seen.argmax(1).tolist()
    after = (2 * REACH - seen[:, ::-1].argmax(1)).tolist()
    return [
        _Table.at(begin - REACH, own[begin:end])
        for own, begin, end in zip(levels, first, after, strict=True)
    ]


def decode_parts(decoder: stream.queue.RangeDecoder, parts: Sequence[np.ndarray]) -> None:
    """Read parts of symbols into arrays of zeros, which are as long as these parts."""
    ends = (decoder.decode(_END_MODEL, 2 * len(parts)) - REACH).reshape(-1, 2).tolist()
    if any(last < first for first, last in ends):
        raise BadSymbols("a table of symbols ends before it begins")
    widths = [last - first + 1 for first, last in ends]
    steps = decoder.decode(_LEVEL_MODEL, sum(width for width in widths if width > 1)) - _LEVELS
    levels = np.cumsum(steps, dtype=np.int32)
    if len(levels) and not 0 <= levels.min() <= levels.max() <= _LEVELS:
        raise BadSymbols("a table of symbols has levels that there are not")
    tables = []
    begin = 0
    for (first, _), width in zip(ends, widths, strict=True):
        own = levels[begin : begin + width] if width > 1 else _ONE
        if not own.any():
            raise BadSymbols("a table of symbols has none")
        tables.append(_Table.at(first, own))
        begin += width if width > 1 else 0
    gaps = iter(decode_numbers(decoder, sum(table.sparse for table in tables)))
    for table, part in zip(tables, parts, strict=True):
        table.decode(decoder, part, next(gaps) if table.sparse else 0)


@dataclass(frozen=True, eq=False)
class _Table:
    """The levels of the symbols from `first` on: 0 for none, then a quarter of an octave each."""

    first: int
    levels: np.ndarray
    rarity: float  # how many symbols there are to each that is not zero

    @classmethod
    def at(cls, first: int, levels: np.ndarray) -> _Table:
        """Return the table of these levels."""
        rarity = 1.0
        if 0 <= -first < len(levels) > 1:
            weights: list[float] = _WEIGHTS[levels].tolist()
            total = fsum(weights)
            rarity = total / max(total - weights[-first], 1.0)
        return cls(first, levels, rarity)

    def decode(self, decoder: stream.queue.RangeDecoder, into: np.ndarray, gaps: int) -> None:
        """Read symbols into an array of zeros; so many gaps, where they are sparse."""
        if len(self.levels) == 1:
            into[:] = self.first
        elif not self.sparse:
            into[:] = decoder.decode(self.model(), len(into))
            into += self.first
        else:
            if gaps > len(into):
                raise BadSymbols("there are more gaps than symbols")
            places = _places(decoder.decode(self.gap_model(), gaps))
            if len(places) and places[-1] >= len(into):
                raise BadSymbols("the gaps are longer than all symbols")
            into[places] = decoder.decode(self.model(), len(places)) + self.first

    @property
    def sparse(self) -> bool:
        """Tell whether nearly all symbols are zero."""
        return self.rarity > 1 / (1 - _SPARSE)

    def model(self) -> stream.model.Categorical:
        """Return how likely the symbols are; zero, where the gaps tell it, hardly is."""
        levels = self.levels
        if self.sparse:
            levels = levels.copy()
            levels[-self.first] = 0
            if not levels.any():
                levels += 1
        return stream.model.Categorical(_WEIGHTS[levels], perfect=False)

    def gap_model(self) -> stream.model.Categorical:
        """Return how likely gaps are, by the share of zeros in quarters of an octave."""
        return _gap_model(int(np.searchsorted(_RARITIES, self.rarity)))


@cache
def _gap_model(level: int) -> stream.model.Categorical:
    """Return how likely so many zeros in a row are, if each symbol is drawn by itself."""
    share = 1 / _WEIGHTS[1 + level]  # of what is not zero
    runs = np.cumprod(np.full(_GAP, 1 - share))
    shares = np.concatenate([[share], runs[:-1] * share, runs[-1:]])
    return stream.model.Categorical(shares, perfect=False)


def _gaps(places: np.ndarray) -> np.ndarray:
    """Return the zeros ahead of each place, as gaps below _GAP; a _GAP goes on in the next."""
    zeros = places.astype(np.int32)
    zeros[1:] -= zeros[:-1] + 1
    if zeros.max(initial=0) < _GAP:
        return zeros
    longer, rest = np.divmod(zeros, _GAP)
    ends = np.cumsum(longer + 1)
    gaps = np.full(ends[-1], _GAP, np.int32)
    gaps[ends - 1] = rest
    return gaps


def _places(gaps: np.ndarray) -> np.ndarray:
    """Return the places that have these gaps ahead."""
    ends = np.cumsum(np.minimum(gaps + 1, _GAP), dtype=np.int64)
    places: np.ndarray = ends[gaps < _GAP] - 1
    return places


def encode_numbers(encoder: stream.queue.RangeEncoder, numbers: Sequence[int]) -> None:
    """Append numbers that are not negative: how many binary digits each has, and these."""
    digits = [number.bit_length() for number in numbers]
    encoder.encode(np.array(digits, np.int32), _DIGITS_MODEL)
    bits = [
        number >> n & 1 for number, count in zip(numbers, digits, strict=True) for n in range(count)
    ]
    encoder.encode(np.array(bits, np.int32), _DIGIT_MODEL)


def decode_numbers(decoder: stream.queue.RangeDecoder, count: int) -> list[int]:
    """Read so many such numbers."""
    digits = decoder.decode(_DIGITS_MODEL, count).tolist()
    bits = iter(decoder.decode(_DIGIT_MODEL, sum(digits)).tolist())
    return [sum(next(bits) << n for n in range(length)) for length in digits]
