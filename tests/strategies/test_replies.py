"""Arrays on the wire: read where they lie, whatever they are."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedivon_app.strategies.replies import Shelf, num_bytes, to_numpy, to_record


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from([np.float32, np.float64, np.int64]).flatmap(
        lambda kind: arrays(kind, array_shapes(max_dims=3))
    ),
    st.booleans(),
)
def test_arrays_come_back_as_they_were(array, fortran):
    sent = np.asfortranarray(array) if fortran else array
    found = to_numpy(to_record({"one": sent}))["one"]
    assert found.dtype == array.dtype and found.shape == array.shape
    np.testing.assert_array_equal(found, array)


def test_the_values_are_not_copied():
    record = to_record({"mean": np.arange(1000, dtype=np.float32)})
    data = np.frombuffer(record["mean"].data, np.uint8)
    found = to_numpy(record)["mean"]
    assert np.shares_memory(found, data) and not found.flags.writeable
    assert 4000 < num_bytes(record) < 4200


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b"\x93NUMPY\x07\x00", b"\x93NUMPY\x01\x00\x10\x00{'shape': oops}\n"]
)
def test_what_is_no_array_is_named(data):
    with pytest.raises(ValueError, match="mean is no array"):
        to_numpy(ArrayRecord({"mean": Array("float32", (3,), "numpy.ndarray", data)}))


def test_an_array_that_was_cut_off_is_named():
    whole = Array(np.ones(5, np.float32))
    with pytest.raises(ValueError, match="mean is no array"):
        to_numpy(ArrayRecord({"mean": Array("float32", (5,), "numpy.ndarray", whole.data[:-4])}))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        arrays(st.sampled_from([np.float32, np.float64]), array_shapes(max_dims=2, min_side=0)),
        min_size=1,
    )
)
def test_a_shelf_gives_back_what_was_put_on_it(values):
    shelf = Shelf()
    stored = [shelf.put({"zero": np.zeros(1), "one": value, "two": value.T}) for value in values]
    found = [look() for look in stored]  # all in hand at once
    for value, pair in zip(values, found, strict=True):
        assert pair["one"].dtype == value.dtype and not pair["one"].flags.writeable
        np.testing.assert_array_equal(pair["one"], value)
        np.testing.assert_array_equal(pair["two"], value.T)


def test_a_shelf_takes_more_after_somebody_looked():
    shelf = Shelf()
    first = shelf.put({"mean": np.arange(3.0)})
    before = first()["mean"]
    second = shelf.put({"mean": np.arange(5.0)})
    np.testing.assert_array_equal(second()["mean"], np.arange(5.0))
    np.testing.assert_array_equal(before, np.arange(3.0))
