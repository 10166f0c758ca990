"""Symbols through the range coder."""

import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedivon_app.core.symbols import LARGEST, decode, encode
from fedivon_app.core.tables import BadSymbols

SIZES = st.integers(0, 2000)


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


def test_silent_runs_cost_nothing():
    symbols = steps(0.5, 64 * 512).reshape(64, 512)
    symbols[::2] = 0
    assert len(encode(symbols.reshape(-1))) < 0.8 * entropy(symbols)


def test_zeros_cost_nothing():
    assert len(encode(np.zeros(1_000_000, np.int32))) <= 16


def test_an_outlier_costs_its_own_bytes_alone():
    symbols = steps(0.2, 20_000)
    before = len(encode(symbols))
    symbols[77] = 12_345_678
    assert len(encode(symbols)) < before + 32


@pytest.mark.parametrize("scales", [(0.02, 1), (0.3, 6), (1, 40)])
def test_tensors_of_different_widths_cost_no_more_than_apart(scales):
    """Which tensor a symbol is of need not be told: the classes of the runs follow from it."""
    parts = [steps(scale, 30_000) for scale in scales]
    together = encode(np.concatenate(parts))
    assert len(together) < 1.02 * sum(entropy(part) for part in parts) + 80


def test_the_bytes_are_the_same_on_all_machines():
    """Who changes these bytes changes what is spoken, and must raise envelope.VERSION."""
    dense = encode(np.arange(-8, 8, dtype=np.int32).repeat(3))
    sparse = encode((np.arange(2000) % 97 == 0).astype(np.int32) * 3)
    assert dense.hex() == "fa608515258ed03f03a0a8eae1a59b845722d0ac2502cd7a22d0ac771dcd7a579abbfca2"
    assert (
        sparse.hex() == "aab37a15356ade69c2f22600169b5f6a6290981a5056a51419d0aaa1e779a782c40448ca"
    )


# Bytes that no encoder made.


@settings(deadline=None, max_examples=500)
@given(st.binary(max_size=200), SIZES)
def test_any_bytes_are_symbols_or_bad(data, size):
    try:
        found = decode(data, size)
    except BadSymbols:
        return
    assert found.dtype in (np.int16, np.int32) and len(found) == size
    assert np.abs(found.astype(np.int64)).max(initial=0) <= 2 * LARGEST


@settings(deadline=None, max_examples=500)
@given(vectors(), st.data())
def test_bytes_that_were_changed_are_symbols_or_bad(symbols, data):
    coded = bytearray(encode(symbols))
    for _ in range(data.draw(st.integers(1, 3))):
        if coded:
            coded[data.draw(st.integers(0, len(coded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(BadSymbols):
        assert len(decode(bytes(coded), len(symbols))) == len(symbols)


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
