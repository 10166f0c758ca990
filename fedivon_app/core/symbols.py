"""Whole numbers as few bytes: a range coder, with models that travel along.

Most steps are zero, and which may be others is known from what happens around them and from what
was drawn to round them (core/activity.py): that makes up their class. The symbols of a class share
one table (core/tables.py), wherever in the vector they are. All of it goes through one range coder,
in this order: whether there are symbols beyond a table; the levels of rows and columns, from which
classes follow; then the symbols, class by class.

Where symbols are beyond a table, a class parts with the lowest bits of its symbols, the shift,
which go as they are; what is still beyond it is an outlier, with its place and value. What a
decoder allocates is bounded by the number of symbols, whatever the bytes claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from constriction import stream  # type: ignore[import-untyped]

from fedivon_app.core.activity import Activity, Matrix
from fedivon_app.core.tables import (
    REACH,
    BadSymbols,
    decode_numbers,
    decode_parts,
    encode_numbers,
    encode_parts,
)

LARGEST = 1 << 24  # of all symbols: beyond it float32 does not have all whole numbers
_OUTLIER = 8  # bytes of an outlier
_SHIFTS = 17  # more than the largest symbol needs
_WIDE_MODEL = stream.model.Uniform(2)
_HALF_MODEL = stream.model.Uniform(1 << 16)


def encode(
    symbols: np.ndarray, matrices: Sequence[Matrix], drawn: np.ndarray | None = None
) -> bytes:
    """Return the bytes of symbols, which are int32 and of at most LARGEST, of these matrices.

    They are told by what was drawn for them, where a decoder will know it.
    """
    encoder = stream.queue.RangeEncoder()
    if len(symbols):
        wide = len(_outside(symbols, 0)) > 0
        if not wide:
            symbols = symbols.astype(np.int16)  # half the memory to go through
        encoder.encode(np.array([wide], np.int32), _WIDE_MODEL)
        activity = Activity.of(symbols, matrices)
        for levels in activity.told:
            encode_parts(encoder, levels, [len(levels)])
        order = _Order.of(len(symbols), *activity.busy(drawn))
        ordered = order.ordered(_folded(symbols, drawn))
        if wide:
            _encode_wide(encoder, ordered, order.ends)
        else:
            encode_parts(encoder, ordered, order.ends)
    words: np.ndarray = encoder.get_compressed()
    return words.astype("<u4").tobytes()


def decode(
    data: bytes | memoryview, matrices: Sequence[Matrix], drawn: np.ndarray | None = None
) -> np.ndarray:
    """Return the symbols of these matrices; bytes that cannot be theirs are BadSymbols."""
    if len(data) % 4:
        raise BadSymbols(f"{len(data)} bytes of symbols are no multiple of 4")
    decoder = stream.queue.RangeDecoder(np.frombuffer(data, "<u4").astype(np.uint32))
    try:
        symbols = _decode(decoder, matrices, drawn) if matrices else np.empty(0, np.int16)
    except AssertionError:  # the word of the range coder
        raise BadSymbols("the symbols are not what a range coder makes") from None
    if not decoder.maybe_exhausted():
        raise BadSymbols("there are more bytes than symbols")
    return symbols


def _decode(
    decoder: stream.queue.RangeDecoder, matrices: Sequence[Matrix], drawn: np.ndarray | None
) -> np.ndarray:
    wide = int(decoder.decode(_WIDE_MODEL, 1)[0])
    activity = Activity.silent(matrices)
    for levels in activity.told:
        decode_parts(decoder, [levels])
    activity.check()
    order = _Order.of(sum(one.rows * one.columns for one in matrices), *activity.busy(drawn))
    ordered = np.zeros(order.ends[-1], np.int32 if wide else np.int16)
    parts = _parts(ordered, order.ends)
    if wide:
        _decode_wide(decoder, parts)
    else:
        decode_parts(decoder, parts)
    return _folded(order.in_place(ordered), drawn)


def _folded(symbols: np.ndarray, drawn: np.ndarray | None) -> np.ndarray:
    """Return the symbols, with another sign where u is beyond a half.

    ceil(x - u) is then drawn as ceil(-x - (1 - u)) would be, so that one table does for both.
    """
    if drawn is None:
        return symbols
    signs = 1 - 2 * (drawn >> 15).astype(symbols.dtype)
    signs *= symbols
    return signs


@dataclass(frozen=True, eq=False)
class _Order:
    """All symbols, but with zeros at these places; then those at these places, by class.

    `size` is how many symbols there are, and `ends` is where each class ends. Most symbols are of
    class 0: they stay where they are, and the zeros among them cost next to nothing.
    """

    size: int
    places: np.ndarray
    ends: list[int]

    @classmethod
    def of(cls, size: int, places: np.ndarray, classes: np.ndarray) -> _Order:
        """Return the order of so many symbols, with those that are not of class 0."""
        counts = np.bincount(classes)
        ends = size + np.cumsum(counts[counts > 0])
        return cls(size, places[np.argsort(classes, kind="stable")], [size, *ends.tolist()])

    def ordered(self, symbols: np.ndarray) -> np.ndarray:
        """Return the symbols in this order."""
        ordered = np.concatenate([symbols, symbols[self.places]])
        ordered[self.places] = 0
        return ordered

    def in_place(self, ordered: np.ndarray) -> np.ndarray:
        """Return the symbols that are these in order."""
        symbols = ordered[: self.size]
        symbols[self.places] = ordered[self.size :]
        return symbols


def _parts(ordered: np.ndarray, ends: Sequence[int]) -> list[np.ndarray]:
    return [ordered[first:after] for first, after in pairwise([0, *ends])]


# Wide symbols.


def _encode_wide(
    encoder: stream.queue.RangeEncoder, symbols: np.ndarray, ends: Sequence[int]
) -> None:
    """Append the parts that end here, some of which have symbols that are beyond a table."""
    parts = _parts(symbols, ends)
    shifts = [_shift(part) for part in parts]
    encode_numbers(encoder, shifts)
    high = []
    for part, shift in zip(parts, shifts, strict=True):
        outside = _outside(part, shift)
        encode_numbers(encoder, [len(outside)])
        _encode_words(encoder, np.concatenate([outside, part[outside] + LARGEST]))
        part[outside] = 0
        high.append(part >> shift)
    encode_parts(encoder, np.concatenate(high), ends)
    for part, shift in zip(parts, shifts, strict=True):
        if shift:
            low = part & np.int32((1 << shift) - 1)
            encoder.encode(low, stream.model.Uniform(1 << shift))


def _decode_wide(decoder: stream.queue.RangeDecoder, parts: Sequence[np.ndarray]) -> None:
    """Read such parts into arrays of zeros."""
    shifts = decode_numbers(decoder, len(parts))
    if max(shifts, default=0) >= _SHIFTS:
        raise BadSymbols("symbols have more low bits than there are")
    outliers = []
    for part in parts:
        (count,) = decode_numbers(decoder, 1)
        if count > len(part):
            raise BadSymbols("a class has more outliers than symbols")
        outside = _decode_words(decoder, count)
        values = _decode_words(decoder, count) - LARGEST
        if (outside >= len(part)).any() or (np.abs(values) > LARGEST).any():
            raise BadSymbols("an outlier lies outside of its class, or is too large")
        outliers.append((outside, values))
    decode_parts(decoder, parts)
    for part, shift, (outside, values) in zip(parts, shifts, outliers, strict=True):
        if shift:
            part <<= shift
            part |= decoder.decode(stream.model.Uniform(1 << shift), len(part))
        part[outside] = values


def _shift(symbols: np.ndarray) -> int:
    """Return how many low bits to part with, so that few symbols are outliers.

    Bits are weighed against the bytes of the outliers. The lowest ones, which are noise in most
    symbols, cost nothing: no table would make them shorter.
    """
    if not len(_outside(symbols, 0)):
        return 0
    sizes = np.abs(symbols)
    noise = max(0, int(np.median(sizes)).bit_length() - 2)
    costs = [
        max(0, shift - noise) * len(symbols) / 8
        + _OUTLIER * int(np.count_nonzero(sizes >= REACH << shift))
        for shift in range(_SHIFTS)
    ]
    return costs.index(min(costs))


def _outside(symbols: np.ndarray, shift: int) -> np.ndarray:
    """Return the places of the outliers."""
    most = REACH << shift
    if -most < symbols.min() <= symbols.max() < most:
        return np.empty(0, np.intp)
    return np.flatnonzero(np.abs(symbols) >= most)


def _encode_words(encoder: stream.queue.RangeEncoder, numbers: np.ndarray) -> None:
    """Append numbers of up to 32 bits, as two halves."""
    halves = np.stack([numbers >> 16, numbers & 0xFFFF], axis=-1)
    encoder.encode(halves.astype(np.int32).reshape(-1), _HALF_MODEL)


def _decode_words(decoder: stream.queue.RangeDecoder, count: int) -> np.ndarray:
    halves = decoder.decode(_HALF_MODEL, 2 * count).astype(np.int64)
    numbers: np.ndarray = (halves[::2] << 16) | halves[1::2]
    return numbers
