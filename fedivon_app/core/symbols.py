"""Whole numbers as few bytes: a range coder, with models that travel along.

A vector of steps, most of which are zero, is coded tensor by tensor; small tensors share a model.
The symbols of a tensor may be told apart by runs of consecutive ones, each with a class that says
how much happens in it: where a neuron is silent, whole runs are zero and cost nothing. Each class
has one table (core/tables.py). All of it goes through one range coder, in this order for each group
of tensors: the runs' length, the shift and the outliers; the runs' classes; for each class its
table and its symbols; the low bits.

Symbols of a wide tensor lose their lowest bits, the shift, which go as they are; what is still
beyond a table is an outlier, with its place and value. What a decoder allocates is bounded by the
tensors' sizes, whatever the bytes claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from constriction import stream  # type: ignore[import-untyped]

from fedivon_app.core.tables import REACH, BadSymbols, Table, decode_number, encode_number

LARGEST = 1 << 24  # of all symbols: beyond it float32 does not have all whole numbers
_SMALL = 512  # tensors below this size share a model
_RUNS = (0, 16, 512)  # lengths of runs that are tried; 0 for none
_CLASSES = 10
_OUTLIER = 8  # bytes of an outlier
_SHIFTS = 18  # more than the largest symbol needs
_HEAD_MODEL = stream.model.Uniform(2 * _SHIFTS * len(_RUNS))
_HALF_MODEL = stream.model.Uniform(1 << 16)


def encode(symbols: np.ndarray, sizes: Sequence[int]) -> bytes:
    """Return the bytes of symbols of at most LARGEST, which are those of tensors of these sizes."""
    encoder = stream.queue.RangeEncoder()
    for group in _groups(sizes):
        parts = [symbols[place] for place in group]
        _encode_group(encoder, parts[0] if len(parts) == 1 else np.concatenate(parts))
    words: np.ndarray = encoder.get_compressed()
    return words.astype("<u4").tobytes()


def decode(data: bytes | memoryview, sizes: Sequence[int]) -> np.ndarray:
    """Return the symbols, as int32; bytes that cannot be theirs are BadSymbols."""
    if len(data) % 4:
        raise BadSymbols(f"{len(data)} bytes of symbols are no multiple of 4")
    decoder = stream.queue.RangeDecoder(np.frombuffer(data, "<u4").astype(np.uint32))
    symbols = np.empty(sum(sizes), np.int32)
    try:
        for group in _groups(sizes):
            found = _decode_group(decoder, sum(place.stop - place.start for place in group))
            first = 0
            for place in group:
                after = first + place.stop - place.start
                symbols[place] = found[first:after]
                first = after
    except AssertionError:  # the word of the range coder
        raise BadSymbols("the symbols are not what a range coder makes") from None
    if not decoder.maybe_exhausted():
        raise BadSymbols("there are more bytes than symbols")
    return symbols


def places_of(sizes: Sequence[int]) -> list[slice]:
    """Return where tensors of these sizes lie, one after the other; empty ones lie nowhere."""
    ends = accumulate(sizes, initial=0)
    return [slice(first, after) for first, after in pairwise(ends) if after > first]


def _groups(sizes: Sequence[int]) -> Iterator[list[slice]]:
    """Yield the places that share a model: each large tensor by itself, then the small ones."""
    places = places_of(sizes)
    small = [place for place in places if place.stop - place.start < _SMALL]
    yield from ([place] for place in places if place.stop - place.start >= _SMALL)
    if small:
        yield small


def _encode_group(encoder: stream.queue.RangeEncoder, symbols: np.ndarray) -> None:
    shift = _shift(symbols)
    outside = _outside(symbols, shift)
    plain = symbols
    if len(outside):
        plain = symbols.copy()
        plain[outside] = 0
    high = plain >> shift if shift else plain
    runs = _best_runs(high)
    head = (_RUNS.index(runs.length) * _SHIFTS + shift) * 2 + bool(len(outside))
    encoder.encode(np.array([head], np.int32), _HEAD_MODEL)
    if len(outside):
        encode_number(encoder, len(outside))
        _encode_words(encoder, np.concatenate([outside, symbols[outside] + LARGEST]))
    if runs.length:
        table = Table.of(runs.classes)
        table.encode(encoder)
        table.encode_symbols(encoder, runs.classes)
    rows = _rows(high, runs.length)
    for chosen in runs.by_class():
        values = rows[chosen].reshape(-1)
        table = Table.of(values)
        table.encode(encoder)
        table.encode_symbols(encoder, values)
    if shift:
        low = plain & np.int32((1 << shift) - 1)
        encoder.encode(low, stream.model.Uniform(1 << shift))


def _decode_group(decoder: stream.queue.RangeDecoder, size: int) -> np.ndarray:
    head = int(decoder.decode(_HEAD_MODEL, 1)[0])
    which, shift = divmod(head // 2, _SHIFTS)
    count = decode_number(decoder) if head % 2 else 0
    if count > size:
        raise BadSymbols("a tensor has more outliers than symbols")
    outside = _decode_words(decoder, count)
    values = _decode_words(decoder, count) - LARGEST
    if (outside >= size).any() or (np.abs(values) > LARGEST).any():
        raise BadSymbols("an outlier lies outside of its tensor, or is too large")
    length = _RUNS[which]
    classes = np.ones(1, np.int32)
    if length:
        table = Table.decode(decoder)
        if table.first < 0 or table.last >= _CLASSES:
            raise BadSymbols("a run of symbols is of a class that there is not")
        classes = table.decode_symbols(decoder, -(-size // length))
    rows = np.zeros((len(classes), length or size), np.int32)
    for chosen in _Runs(length, classes).by_class():
        table = Table.decode(decoder)
        count = int(np.count_nonzero(chosen)) * rows.shape[1]
        rows[chosen] = table.decode_symbols(decoder, count).reshape(-1, rows.shape[1])
    symbols: np.ndarray = rows.reshape(-1)[:size]
    if shift:
        symbols <<= shift
        symbols |= decoder.decode(stream.model.Uniform(1 << shift), size)
    symbols[outside] = values
    return symbols


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


class _Runs(NamedTuple):
    """The length of runs and the class of each; one of length 0, of class 1, is all symbols."""

    length: int
    classes: np.ndarray

    def by_class(self) -> Iterator[np.ndarray]:
        """Yield which runs are of the same class, but not those of class 0, which are all zero."""
        for number in range(1, _CLASSES):
            if (chosen := self.classes == number).any():
                yield chosen


def _rows(symbols: np.ndarray, length: int) -> np.ndarray:
    """Return the symbols with a run a row; zeros fill the last one."""
    if not length:
        return symbols[None]
    missing = -len(symbols) % length
    return np.append(symbols, np.zeros(missing, np.int32)).reshape(-1, length)


def _best_runs(symbols: np.ndarray) -> _Runs:
    """Return the runs that make the symbols cheapest."""
    none = _Runs(0, np.ones(1, np.int32))
    if not 0 < 2 * np.count_nonzero(symbols) <= len(symbols):
        return none
    places = np.flatnonzero(symbols != 0)
    values = symbols[places]
    sizes = np.abs(values)
    offers = [none]
    for length in _RUNS:
        if length and len(symbols) >= 2 * length:
            number = -(-len(symbols) // length)
            sums = np.bincount(places // length, weights=sizes, minlength=number)
            digits = np.frexp(sums)[1]  # how many binary digits the sum of a run's sizes has
            offers.append(_Runs(length, np.minimum(digits, _CLASSES - 1).astype(np.int32)))
    return min(offers, key=lambda runs: _cost(runs, len(symbols), places, values))


def _cost(runs: _Runs, size: int, places: np.ndarray, values: np.ndarray) -> float:
    """Return about how many bits so many symbols take, with the places and values of all but 0."""
    first = int(values.min())
    width = int(values.max()) - first + 1
    row = runs.classes[places // runs.length] if runs.length else 1
    cells = np.bincount(row * width + (values - first), minlength=_CLASSES * width)
    members = np.bincount(runs.classes, minlength=_CLASSES)
    counts = np.zeros((_CLASSES, width + 1))
    counts[:, :width] = cells.reshape(_CLASSES, width)
    counts[:, width] = members * (runs.length or size) - counts.sum(1)
    return _bits(counts[1:]) + (_bits(members[None]) if runs.length else 0.0)


def _bits(counts: np.ndarray) -> float:
    """Return the entropy of rows of counts, with what their tables take."""
    totals = counts.sum(1)
    totals = totals[totals > 0].astype(np.float64)
    seen = counts[counts > 0].astype(np.float64)
    entropy = float(np.sum(totals * np.log2(totals)) - np.sum(seen * np.log2(seen)))
    return entropy + 32 * len(totals) + 4 * len(seen)
