"""Numbers as integers: how exact a sum is, and that cut-off numbers are counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedivon_app.core.secure.fixed_point import Layout, Slot, Words

SLOTS = {"a": Slot(3, bound=256), "b": Slot(2, bound=2.0**24, bits=64), "c": Slot(1, bound=64)}


def _sum(layout, *sites):
    total = layout.zeros()
    for values in sites:
        total.add(layout.encode(values))
    return layout.decode(total)


@given(st.lists(st.floats(-256, 256), min_size=1, max_size=20))
def test_a_sum_is_exact_to_half_a_step_for_each_site(numbers):
    layout = Layout({"a": Slot(1, bound=256)}, clients=20)
    summed = _sum(layout, *({"a": np.array([x])} for x in numbers))
    step = 256 * 20 / (2**31 - 1)
    assert abs(summed.values["a"][0] - sum(numbers)) <= len(numbers) * step / 2 * 1.001
    assert summed.sites == len(numbers)
    assert summed.clipped == 0


def test_each_vector_comes_back_under_its_name():
    layout = Layout(SLOTS, clients=3)
    one = {"a": np.array([1.0, -2, 3]), "b": np.array([1e6, -4e6]), "c": np.array([0.5])}
    summed = _sum(layout, one, one, one)
    for name, value in one.items():
        np.testing.assert_allclose(summed.values[name], 3 * value, rtol=1e-6)


@pytest.mark.parametrize("clients", [1, 3, 4, 5])
@pytest.mark.parametrize("bits", [31, 32, 33, 64])
def test_even_the_largest_sum_fits(bits, clients):
    layout = Layout({"a": Slot(2, bound=7.0, bits=bits)}, clients)
    summed = _sum(layout, *[{"a": np.array([7.0, -7.0])}] * clients)
    np.testing.assert_allclose(summed.values["a"], [7 * clients, -7 * clients], rtol=1e-6)


@given(
    st.integers(20, 44),
    st.lists(
        st.tuples(st.floats(-7, 7), st.floats(-9, 9), st.floats(-3, 3)), min_size=1, max_size=6
    ),
)
def test_two_vectors_of_the_same_length_share_words_of_64_bits(bits, sites):
    """Whatever the signs: what the sum below borrows does not change the one above it."""
    slots = {
        "low": Slot(1, bound=7.0, bits=bits),
        "narrow": Slot(1, bound=3.0),
        "high": Slot(1, bound=9.0, bits=64 - bits),
    }
    layout = Layout(slots, clients=len(sites))
    assert layout.zeros().num_bytes == 4 + 8 + 16
    values = [
        {"low": np.array([low]), "high": np.array([high]), "narrow": np.array([narrow])}
        for low, high, narrow in sites
    ]
    summed = _sum(layout, *values)
    for name, slot in slots.items():
        error = abs(summed.values[name][0] - sum(own[name][0] for own in values))
        assert error <= len(sites) * 1.001 / slot.scale(len(sites))


def test_numbers_beyond_a_bound_are_cut_off_and_counted():
    layout = Layout({"a": Slot(4, bound=10.0)}, clients=2)
    values = np.array([1.0, 11.0, -100.0, 10.0])
    summed = _sum(layout, {"a": values}, {"a": -values})
    assert summed.clipped == 4
    np.testing.assert_allclose(summed.values["a"], 0, atol=1e-7)


def test_what_is_no_number_or_no_such_vector_is_an_error():
    layout = Layout(SLOTS, clients=3)
    one = {"a": np.zeros(3), "b": np.zeros(2), "c": np.zeros(1)}
    with pytest.raises(ValueError, match="b has values that are not finite"):
        layout.encode(one | {"b": np.array([1.0, np.nan])})
    with pytest.raises(ValueError, match="a has 4 numbers, not 3"):
        layout.encode(one | {"a": np.zeros(4)})
    with pytest.raises(ValueError, match="the sum is of"):
        layout.encode({"a": np.zeros(3)})
    with pytest.raises(ValueError, match=r"shape \(2,\), not \(4,\)"):
        layout.zeros().add(Words(np.zeros(2, np.uint32), np.zeros(4, np.uint64)))
    with pytest.raises(ValueError, match="float64"):
        Words(np.zeros(3), np.zeros(1, np.uint64))
