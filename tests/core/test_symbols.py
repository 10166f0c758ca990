"""Symbols through the range coder."""

import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedivon_app.core import symbols as coder
from fedivon_app.core.activity import Matrix, matrices_of
from fedivon_app.core.rounding import Rounding
from fedivon_app.core.symbols import LARGEST
from fedivon_app.core.tables import BadSymbols

SIZES = st.integers(0, 2000)


def encode(symbols: np.ndarray, drawn: np.ndarray | None = None, rows: int = 1) -> bytes:
    """Return the bytes of symbols that are those of a layer, if it has several rows."""
    return coder.encode(symbols, _matrices(len(symbols), rows), drawn)


def decode(data: bytes, size: int, drawn: np.ndarray | None = None, rows: int = 1) -> np.ndarray:
    return coder.decode(data, _matrices(size, rows), drawn)


def _matrices(size: int, rows: int):
    """Return a layer of so many rows, where they come out even."""
    if size and size % rows == 0:
        return [Matrix(rows, size // rows)]
    return matrices_of([size])


def draws(size: int, seed: int = 0) -> np.ndarray:
    return Rounding((seed,)).drawn(size)


def entropy(symbols: np.ndarray) -> float:
    """Return how many bytes the symbols take at the least, if each is drawn by itself."""
    _, counts = np.unique(symbols, return_counts=True)
    return float(-(counts * np.log2(counts / counts.sum())).sum() / 8)


def steps(scale: float, size: int, seed: int = 0) -> np.ndarray:
    """Return changes of this scale, rounded at random."""
    rng = np.random.default_rng(seed)
    changes = rng.laplace(0, scale, size)
    floor = np.floor(changes)
    return (floor + (rng.random(size) < changes - floor)).astype(np.int32)


VALUES = st.one_of(
    st.just(0), st.integers(-2, 2), st.integers(-600, 600), st.integers(-LARGEST, LARGEST)
)


@st.composite
def vectors(draw):
    """Return symbols, most of which are zero or one number."""
    return draw(arrays(np.int32, draw(SIZES), elements=VALUES, fill=VALUES | st.just(0)))


@settings(deadline=None, max_examples=300)
@given(vectors())
def test_symbols_come_back(symbols):
    np.testing.assert_array_equal(decode(encode(symbols), len(symbols)), symbols)


@settings(deadline=None, max_examples=200)
@given(vectors(), st.integers(1, 20), st.integers(0, 3))
def test_symbols_come_back_whatever_was_drawn(symbols, rows, seed):
    drawn = draws(len(symbols), seed)
    found = decode(encode(symbols, drawn, rows), len(symbols), drawn, rows)
    np.testing.assert_array_equal(found, symbols)


@settings(deadline=None, max_examples=60)
@given(st.floats(0.001, 3000), st.integers(1, 9000), st.integers(0, 9))
def test_symbols_of_all_widths_come_back(scale, size, seed):
    symbols = steps(scale, size, seed)
    np.testing.assert_array_equal(decode(encode(symbols), size), symbols)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(0.001, 3000), st.integers(1, 2000)), max_size=6))
def test_symbols_of_different_widths_come_back_together(tensors):
    parts = [steps(scale, size) for scale, size in tensors]
    symbols = np.concatenate([np.empty(0, np.int32), *parts])
    np.testing.assert_array_equal(decode(encode(symbols), len(symbols)), symbols)


@pytest.mark.parametrize("far", [0, 1, 254, 255, 256, 509, 510, 511, 5000])
def test_symbols_that_are_far_apart_come_back(far):
    symbols = np.zeros(20_000, np.int32)
    symbols[:: far + 1] = -1
    np.testing.assert_array_equal(decode(encode(symbols), 20_000), symbols)


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.2, 1, 5, 30])
def test_bytes_are_near_the_entropy(scale):
    symbols = steps(scale, 50_000)
    assert len(encode(symbols)) < 1.02 * entropy(symbols) + 40


@pytest.mark.parametrize("scale", [200, 3000, 100_000])
def test_bytes_of_wide_symbols_are_near_the_entropy_of_a_laplace_distribution(scale):
    bits = np.log2(2 * np.e * scale)
    assert len(encode(steps(scale, 50_000))) < 1.02 * 50_000 * bits / 8


@pytest.mark.parametrize("scale", [0.05, 0.2, 1, 5])
def test_bytes_are_fewer_than_those_of_zlib(scale):
    symbols = steps(scale, 50_000)
    general = zlib.compress(symbols.astype(np.int8).tobytes(), 9)
    assert len(encode(symbols)) < 0.95 * len(general)


@pytest.mark.parametrize("place", [np.s_[::2], np.s_[:, ::2]])
def test_silent_rows_and_columns_cost_next_to_nothing(place):
    symbols = steps(0.5, 64 * 512).reshape(64, 512)
    symbols[place] = 0
    told = encode(symbols.reshape(-1), rows=64)
    assert len(told) < 0.8 * entropy(symbols)


@pytest.mark.parametrize("scale", [0.01, 0.1, 0.5])
def test_who_knows_what_was_drawn_needs_fewer_bytes(scale):
    size = 64 * 512
    changes = np.random.default_rng(1).laplace(0, scale, size)
    drawn = draws(size)
    symbols = np.ceil(changes - (drawn + 0.5) / 65536).astype(np.int32)
    told = encode(symbols, drawn, rows=64)
    np.testing.assert_array_equal(decode(told, size, drawn, rows=64), symbols)
    share = {0.01: 0.65, 0.1: 0.75, 0.5: 0.95}[scale]
    assert len(told) < share * len(encode(symbols, rows=64))


def test_zeros_cost_nothing():
    assert len(encode(np.zeros(1_000_000, np.int32))) <= 16


def test_an_outlier_costs_its_own_bytes_alone():
    symbols = steps(0.2, 20_000)
    before = len(encode(symbols))
    symbols[77] = 12_345_678
    assert len(encode(symbols)) < before + 32


@pytest.mark.parametrize("scales", [(0.02, 1), (0.3, 6), (1, 40)])
def test_tensors_of_different_widths_cost_no_more_than_apart(scales):
    """A row of each is enough to tell which symbols are large."""
    parts = [steps(scale, 30_000) for scale in scales]
    together = coder.encode(np.concatenate(parts), [Matrix(1, 30_000)] * 2)
    assert len(together) < 1.02 * sum(entropy(part) for part in parts) + 80


def test_the_bytes_are_the_same_on_all_machines():
    """Who changes these bytes changes what is spoken, and must raise envelope.VERSION."""
    dense = encode(np.arange(-8, 8, dtype=np.int32).repeat(3))
    sparse = encode((np.arange(2000) % 97 == 0).astype(np.int32) * 3)
    told = "005c7041b77039fe6f90171f787dc52e824d9ed3069ad36c06a0336d66a039cd0c063ad300001a06"
    assert dense.hex() == told
    told = "0024904017f03dfe0bf7f1ef80d9b9c743ee890514b0634c439fca193cad0cc553876526"
    assert sparse.hex() == told


# Bytes that no encoder made.


@settings(deadline=None, max_examples=500)
@given(st.binary(max_size=200), SIZES, st.booleans())
def test_any_bytes_are_symbols_or_bad(data, size, known):
    try:
        found = decode(data, size, draws(size) if known else None, rows=5)
    except BadSymbols:
        return
    assert found.dtype in (np.int16, np.int32) and len(found) == size
    assert np.abs(found.astype(np.int64)).max(initial=0) <= 2 * LARGEST


@settings(deadline=None, max_examples=500)
@given(vectors(), st.booleans(), st.data())
def test_bytes_that_were_changed_are_symbols_or_bad(symbols, known, data):
    drawn = draws(len(symbols)) if known else None
    coded = bytearray(encode(symbols, drawn))
    for _ in range(data.draw(st.integers(1, 3))):
        if coded:
            coded[data.draw(st.integers(0, len(coded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(BadSymbols):
        assert len(decode(bytes(coded), len(symbols), drawn)) == len(symbols)


@settings(deadline=None, max_examples=200)
@given(vectors(), SIZES)
def test_bytes_of_another_vector_are_symbols_or_bad(symbols, size):
    with suppress(BadSymbols):
        assert len(decode(encode(symbols), size)) == size


def test_bytes_too_many_are_noticed():
    coded = encode(steps(1, 1000))
    with pytest.raises(BadSymbols, match="more bytes than symbols"):
        decode(coded + bytes(range(64)), 1000)
    with pytest.raises(BadSymbols, match="no multiple of 4"):
        decode(coded[:-1], 1000)
