"""Symbols through a range coder, each kind with a table of how often it occurs.

A table tells the share of each symbol in quarters of an octave, and travels ahead of the symbols.
Where nearly all are zero, it is the gaps between the others that are coded: they are fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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
_FEW = 8  # symbols that are counted one by one


class BadSymbols(ValueError):
    """Bytes that no encoder made."""


@dataclass(frozen=True, eq=False)
class Table:
    """The levels of the symbols from `first` on: 0 for none, then a quarter of an octave each."""

    first: int
    levels: np.ndarray

    @property
    def last(self) -> int:
        """Return the last symbol."""
        return self.first + len(self.levels) - 1

    @classmethod
    def of(cls, symbols: np.ndarray) -> Table:
        """Return the table of these symbols."""
        first = int(symbols.min())
        counts = _counts(symbols, first, int(symbols.max()))
        levels = np.zeros(len(counts), np.int32)
        seen = counts > 0
        levels[seen] = 1 + np.rint(_STEPS * np.log2(counts[seen])).astype(np.int32)
        return cls(first, levels)

    def encode(self, encoder: stream.queue.RangeEncoder) -> None:
        """Append the table; one of a single symbol has no levels to tell."""
        encoder.encode(np.array([self.first, self.last], np.int32) + REACH, _END_MODEL)
        if len(self.levels) > 1:
            steps = np.diff(self.levels, prepend=0).astype(np.int32)
            encoder.encode(steps + _LEVELS, _LEVEL_MODEL)

    @classmethod
    def decode(cls, decoder: stream.queue.RangeDecoder) -> Table:
        """Read a table."""
        first, last = (decoder.decode(_END_MODEL, 2) - REACH).tolist()
        if last < first:
            raise BadSymbols("a table of symbols ends before it begins")
        if last == first:
            return cls(first, np.ones(1, np.int32))
        levels = np.cumsum(decoder.decode(_LEVEL_MODEL, last - first + 1) - _LEVELS)
        if levels.min() < 0 or levels.max() > _LEVELS or not levels.any():
            raise BadSymbols("a table of symbols has levels that there are not")
        return cls(first, levels)

    def encode_symbols(self, encoder: stream.queue.RangeEncoder, symbols: np.ndarray) -> None:
        """Append symbols of this table."""
        if len(self.levels) == 1:
            return
        if self._zeros < _SPARSE:
            encoder.encode(symbols - np.int32(self.first), self._model(self.levels))
            return
        places = np.flatnonzero(symbols != 0)  # faster than without the comparison
        longer, gaps = np.divmod(np.diff(places, prepend=-1) - 1, _GAP)
        ends = np.cumsum(longer + 1)
        tokens = np.full(ends[-1] if len(ends) else 0, _GAP, np.int32)
        tokens[ends - 1] = gaps
        encode_number(encoder, len(tokens))
        encoder.encode(tokens, self._gap_model())
        encoder.encode(symbols[places] - np.int32(self.first), self._model(self._others))

    def decode_symbols(self, decoder: stream.queue.RangeDecoder, count: int) -> np.ndarray:
        """Read so many symbols."""
        if len(self.levels) == 1:
            return np.full(count, self.first, np.int32)
        if self._zeros < _SPARSE:
            return self._decode_plain(decoder, count, self.levels)
        number = decode_number(decoder)
        if number > count:
            raise BadSymbols("there are more gaps than symbols")
        tokens = decoder.decode(self._gap_model(), number)
        ends = np.cumsum(np.minimum(tokens + 1, _GAP))
        if number and ends[-1] > count:
            raise BadSymbols("the gaps are longer than all symbols")
        places = ends[tokens < _GAP] - 1
        symbols = np.zeros(count, np.int32)
        symbols[places] = self._decode_plain(decoder, len(places), self._others)
        return symbols

    @cached_property
    def _zeros(self) -> float:
        """Return the share of zeros."""
        if not self.first <= 0 <= self.last:
            return 0.0
        weights: list[float] = _WEIGHTS[self.levels].tolist()
        return weights[-self.first] / fsum(weights)

    @property
    def _others(self) -> np.ndarray:
        """Return the levels of all but zero, which then counts as one that hardly occurs."""
        levels = self.levels.copy()
        levels[-self.first] = 0
        return levels if levels.any() else np.ones_like(levels)

    def _decode_plain(
        self, decoder: stream.queue.RangeDecoder, count: int, levels: np.ndarray
    ) -> np.ndarray:
        symbols: np.ndarray = decoder.decode(self._model(levels), count)
        symbols += self.first
        return symbols

    @staticmethod
    def _model(levels: np.ndarray) -> stream.model.Categorical:
        return stream.model.Categorical(_WEIGHTS[levels], perfect=False)

    def _gap_model(self) -> stream.model.Categorical:
        """Return how likely so many zeros in a row are, if each symbol is drawn by itself."""
        runs = np.cumprod(np.full(_GAP, self._zeros))
        shares = np.append(np.append(1.0, runs[:-1]) * (1 - self._zeros), runs[-1])
        return stream.model.Categorical(shares, perfect=False)


def encode_number(encoder: stream.queue.RangeEncoder, number: int) -> None:
    """Append a number that is not negative: how many binary digits it has, and these."""
    digits = number.bit_length()
    encoder.encode(np.array([digits], np.int32), _DIGITS_MODEL)
    bits = np.array([number >> n & 1 for n in range(digits)], np.int32)
    encoder.encode(bits, _DIGIT_MODEL)


def decode_number(decoder: stream.queue.RangeDecoder) -> int:
    """Read such a number."""
    digits = int(decoder.decode(_DIGITS_MODEL, 1)[0])
    return sum(bit << n for n, bit in enumerate(decoder.decode(_DIGIT_MODEL, digits).tolist()))


def _counts(symbols: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return how often each symbol occurs; where there are few, to compare is faster."""
    if last - first < _FEW:
        return np.array([np.count_nonzero(symbols == n) for n in range(first, last + 1)])
    return np.bincount(symbols - first)
