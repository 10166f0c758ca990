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

SIZES = st.lists(st.integers(0, 700), max_size=4)


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


@st.composite
def symbols_and_sizes(draw):
    sizes = draw(SIZES)
    values = st.one_of(
        st.just(0), st.integers(-2, 2), st.integers(-600, 600), st.integers(-LARGEST, LARGEST)
    )
    found = draw(arrays(np.int32, sum(sizes), elements=values, fill=st.just(0)))
    return found, sizes


@settings(deadline=None, max_examples=200)
@given(symbols_and_sizes())
def test_symbols_come_back(case):
    symbols, sizes = case
    np.testing.assert_array_equal(decode(encode(symbols, sizes), sizes), symbols)


@settings(deadline=None, max_examples=60)
@given(st.floats(0.001, 3000), st.integers(1, 5000), st.integers(0, 9))
def test_symbols_of_all_widths_come_back(scale, size, seed):
    symbols = steps(scale, size, seed)
    sizes = [size // 2, 0, size - size // 2]
    np.testing.assert_array_equal(decode(encode(symbols, sizes), sizes), symbols)


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.2, 1, 5, 30])
def test_bytes_are_near_the_entropy(scale):
    symbols = steps(scale, 50_000)
    assert len(encode(symbols, [50_000])) < 1.02 * entropy(symbols) + 40


@pytest.mark.parametrize("scale", [200, 3000, 100_000])
def test_bytes_of_wide_symbols_are_near_the_entropy_of_a_laplace_distribution(scale):
    bits = np.log2(2 * np.e * scale)
    assert len(encode(steps(scale, 50_000), [50_000])) < 1.02 * 50_000 * bits / 8


@pytest.mark.parametrize("scale", [0.05, 0.2, 1, 5])
def test_bytes_are_fewer_than_those_of_zlib(scale):
    symbols = steps(scale, 50_000)
    general = zlib.compress(symbols.astype(np.int8).tobytes(), 9)
    assert len(encode(symbols, [50_000])) < 0.95 * len(general)


def test_silent_runs_cost_nothing():
    symbols = steps(0.5, 64 * 512).reshape(64, 512)
    symbols[::2] = 0
    assert len(encode(symbols.reshape(-1), [64 * 512])) < 0.8 * entropy(symbols)


def test_zeros_cost_nothing():
    assert len(encode(np.zeros(1_000_000, np.int32), [500_000, 499_990, 10])) <= 16


def test_an_outlier_costs_its_own_bytes_alone():
    symbols = steps(0.2, 20_000)
    before = len(encode(symbols, [20_000]))
    symbols[77] = 12_345_678
    assert len(encode(symbols, [20_000])) < before + 20


def test_small_tensors_share_a_table():
    symbols = steps(1, 1000)
    assert encode(symbols, [10] * 100) == encode(symbols, [1000])


def test_the_bytes_are_the_same_on_all_machines():
    """Who changes these bytes changes what is spoken, and must raise envelope.VERSION."""
    dense = encode(np.arange(-8, 8, dtype=np.int32).repeat(3), [48])
    sparse = encode((np.arange(2000) % 97 == 0).astype(np.int32) * 3, [2000])
    assert dense.hex() == "65f72a013257c8d10b72b7af1a06c91873c5df84bd62b4ce92ac51a316839b40000070e3"
    assert sparse.hex() == "71b42f013997bcb123221ff4fdb2814e4c0775e1804119b6577af19e4159bec1"


# Bytes that no encoder made.


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200), SIZES)
def test_any_bytes_are_symbols_or_bad(data, sizes):
    try:
        found = decode(data, sizes)
    except BadSymbols:
        return
    assert found.dtype == np.int32 and len(found) == sum(sizes)
    assert np.abs(found.astype(np.int64)).max(initial=0) <= 2 * LARGEST


@settings(deadline=None, max_examples=200)
@given(symbols_and_sizes(), st.data())
def test_bytes_that_were_changed_are_symbols_or_bad(case, data):
    symbols, sizes = case
    coded = bytearray(encode(symbols, sizes))
    for _ in range(data.draw(st.integers(1, 3))):
        if coded:
            coded[data.draw(st.integers(0, len(coded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(BadSymbols):
        assert len(decode(bytes(coded), sizes)) == sum(sizes)


def test_bytes_too_many_are_noticed():
    symbols = steps(1, 1000)
    with pytest.raises(BadSymbols, match="more bytes than symbols"):
        decode(encode(symbols, [1000]) + bytes(range(64)), [1000])
    with pytest.raises(BadSymbols, match="no multiple of 4"):
        decode(encode(symbols, [1000])[:-1], [1000])
