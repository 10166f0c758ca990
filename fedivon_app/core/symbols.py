"""Whole numbers as few bytes: a range coder, with models that travel along.

A vector of steps, most of which are zero, is cut into runs of consecutive ones. The class of a run
follows from the sum of its symbols' sizes and says how much happens in it: where a neuron is
silent, whole runs are zero and cost nothing. The symbols of a class share one table
(core/tables.py), wherever in the vector they are, so that a tensor's share of each class is its
model. All of it goes through one range coder, in this order: the length of the runs, a table of
their classes and the classes; then the parts of the vector that each class makes up.

Where symbols are beyond a table, a class parts with the lowest bits of its symbols, the shift,
which go as they are; what is still beyond it is an outlier, with its place and value. What a
decoder allocates is bounded by the number of symbols, whatever the bytes claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from constriction import stream  # type: ignore[import-untyped]

from fedivon_app.core.tables import (
    REACH,
    BadSymbols,
    decode_numbers,
    decode_parts,
    encode_numbers,
    encode_parts,
)

LARGEST = 1 << 24  # of all symbols: beyond it float32 does not have all whole numbers
_LENGTHS = (0, 16, 128)  # of runs that are tried; 0 is for one run of all symbols
_SHORT = 4096  # symbols, beyond which one run of all is never much shorter
_LONG = 1 << 15  # symbols, of which more are looked at by a sample
_CLASSES = 8
_OUTLIER = 8  # bytes of an outlier
_SHIFTS = 17  # more than the largest symbol needs
_HEAD_MODEL = stream.model.Uniform(2 * len(_LENGTHS))
_HALF_MODEL = stream.model.Uniform(1 << 16)


def encode(symbols: np.ndarray) -> bytes:
    """Return the bytes of symbols, which are int32 and of at most LARGEST."""
    encoder = stream.queue.RangeEncoder()
    if len(symbols):
        wide = len(_outside(symbols, 0)) > 0
        if not wide:
            symbols = symbols.astype(np.int16)  # half the memory to go through
        which, runs = _best_runs(symbols)
        encoder.encode(np.array([2 * which + wide], np.int32), _HEAD_MODEL)
        encode_parts(encoder, [runs.classes])
        ordered = runs.ordered(symbols)
        parts = [ordered[place] for place in runs.places()]
        if wide:
            _encode_wide(encoder, parts)
        else:
            encode_parts(encoder, parts)
    words: np.ndarray = encoder.get_compressed()
    return words.astype("<u4").tobytes()


def decode(data: bytes | memoryview, size: int) -> np.ndarray:
    """Return so many symbols, as int16 or int32; bytes that cannot be theirs are BadSymbols."""
    if len(data) % 4:
        raise BadSymbols(f"{len(data)} bytes of symbols are no multiple of 4")
    decoder = stream.queue.RangeDecoder(np.frombuffer(data, "<u4").astype(np.uint32))
    try:
        symbols = _decode_runs(decoder, size) if size else np.empty(0, np.int16)
    except AssertionError:  # the word of the range coder
        raise BadSymbols("the symbols are not what a range coder makes") from None
    if not decoder.maybe_exhausted():
        raise BadSymbols("there are more bytes than symbols")
    return symbols


def _decode_runs(decoder: stream.queue.RangeDecoder, size: int) -> np.ndarray:
    which, wide = divmod(int(decoder.decode(_HEAD_MODEL, 1)[0]), 2)
    length = _LENGTHS[which] or size
    classes = np.zeros(-(-size // length), np.int32)
    decode_parts(decoder, [classes])
    if classes.min() < 0 or classes.max() >= _CLASSES:
        raise BadSymbols("a run of symbols is of a class that there is not")
    runs = _Runs(size, length, classes)
    ordered = np.zeros(len(classes) * length, np.int32 if wide else np.int16)
    parts = [ordered[place] for place in runs.places()]
    if wide:
        _decode_wide(decoder, parts)
    else:
        decode_parts(decoder, parts)
    return runs.in_place(ordered)


# Wide symbols.


def _encode_wide(encoder: stream.queue.RangeEncoder, parts: Sequence[np.ndarray]) -> None:
    """Append parts of which some have symbols that are beyond a table."""
    shifts = [_shift(part) for part in parts]
    encode_numbers(encoder, shifts)
    high = []
    for part, shift in zip(parts, shifts, strict=True):
        outside = _outside(part, shift)
        encode_numbers(encoder, [len(outside)])
        _encode_words(encoder, np.concatenate([outside, part[outside] + LARGEST]))
        part[outside] = 0
        high.append(part >> shift)
    encode_parts(encoder, high)
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


# Runs of consecutive symbols, by class.


@dataclass(frozen=True, eq=False)
class _Runs:
    """So many symbols in runs of this length, and the class of each run."""

    size: int
    length: int
    classes: np.ndarray

    def ordered(self, symbols: np.ndarray) -> np.ndarray:
        """Return the symbols by class, and in a class as they follow; zeros fill the last run."""
        rows = np.zeros((len(self.classes), self.length), symbols.dtype)
        rows.reshape(-1)[: self.size] = symbols
        return rows.take(self._order, axis=0).reshape(-1)

    def in_place(self, ordered: np.ndarray) -> np.ndarray:
        """Return the symbols that are these by class."""
        rows = np.empty((len(self.classes), self.length), ordered.dtype)
        rows[self._order] = ordered.reshape(rows.shape)
        return rows.reshape(-1)[: self.size]

    def places(self) -> Iterator[slice]:
        """Yield where each class lies in this order, but not class 0, whose symbols are zero."""
        first = 0
        for number, count in enumerate(np.bincount(self.classes).tolist()):
            after = first + count * self.length
            if number and count:
                yield slice(first, after)
            first = after

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(self.classes.astype(np.int8), kind="stable")


def _best_runs(symbols: np.ndarray) -> tuple[int, _Runs]:
    """Return the runs that make the symbols cheapest, and which of the lengths they have.

    Of a long vector, a quarter is looked at for the lengths.
    """
    size = len(symbols)
    looked_at = symbols
    if size > _LONG:
        looked_at = symbols[: size // 4096 * 4096].reshape(-1, 4, 1024)[:, 0].reshape(-1)
    offers = [
        (_cost(looked_at, length), which)
        for which, length in enumerate(_LENGTHS)
        if 2 * length <= size and (length or size <= _SHORT)
    ]
    _, which = min(offers)
    length = _LENGTHS[which] or size
    return which, _Runs(size, length, _classes(symbols, length))


def _classes(symbols: np.ndarray, length: int) -> np.ndarray:
    """Return the classes of runs by the sums of their sizes: 0, 1 to 3, 4 to 15 and so on."""
    sums = np.add.reduceat(np.abs(symbols), np.arange(0, len(symbols), length), dtype=np.int64)
    classes: np.ndarray = np.frexp(sums)[1] + 1
    classes >>= 1
    np.minimum(classes, _CLASSES - 1, out=classes)
    return classes


def _cost(symbols: np.ndarray, length: int) -> float:
    """Return about how many bits the symbols take in runs of this length."""
    length = length or len(symbols)
    classes = _classes(symbols, length)
    members = np.bincount(classes, minlength=_CLASSES)
    places = np.flatnonzero(symbols != 0)  # faster than without the comparison
    kinds = np.clip(symbols[places], 1 - REACH, REACH - 1) + np.int32(REACH)
    first = int(kinds.min(initial=2 * REACH))
    width = int(kinds.max(initial=first)) - first + 2
    cells = classes[places // length] * width + (kinds - first)
    counts = np.bincount(cells, minlength=_CLASSES * width).reshape(_CLASSES, width)
    counts[:, -1] = members * length - counts.sum(1)
    return _bits(counts[1:]) + _bits(members[None])


def _bits(counts: np.ndarray) -> float:
    """Return the entropy of rows of counts, with what their tables take."""
    totals = counts.sum(1)
    entropy = np.sum(_times_log(totals)) - np.sum(_times_log(counts))
    return float(entropy) + 32 * np.count_nonzero(totals) + 4 * np.count_nonzero(counts)


def _times_log(counts: np.ndarray) -> np.ndarray:
    """Return n log2 n for each count n, which is 0 for none."""
    logs: np.ndarray = np.log2(np.maximum(counts, 1))
    logs *= counts
    return logs
