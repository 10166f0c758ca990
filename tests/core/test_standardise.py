"""Standardisation by sums over clients: it is that of all rows together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedivon_app.core.errors import DataError
from fedivon_app.core.standardise import ColumnSums, Standard
from fedivon_app.datasets.scaling import inputs

ROWS = arrays(np.float64, (12, 3), elements=st.floats(-1e4, 1e4, width=32) | st.just(float("nan")))


@given(rows=ROWS, cut=st.integers(1, 11))
def test_the_sums_of_clients_add_up_to_those_of_all_rows(rows, cut):
    together = ColumnSums.of(rows).vector
    apart = ColumnSums.of(rows[:cut]).vector + ColumnSums.of(rows[cut:]).vector
    np.testing.assert_allclose(apart, together, rtol=1e-9, atol=1e-6)


def test_mean_and_deviation_are_those_of_all_rows():
    rows = np.random.default_rng(0).normal([5.0, -300.0], [2.0, 0.5], (400, 2))
    rows[::7, 1] = np.nan
    parts = np.split(rows, [50, 120])
    vector = np.sum([ColumnSums.of(part).vector for part in parts], axis=0)
    sums = ColumnSums.from_vector(vector)
    standard = sums.standard(["a", "b"], np.array([True, True]))
    np.testing.assert_allclose(standard.mean, np.nanmean(rows, axis=0))
    np.testing.assert_allclose(standard.deviation, np.nanstd(rows, axis=0))
    assert sums.missing.tolist() == [0, np.isnan(rows[:, 1]).sum()]
    z = standard.apply(rows)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-6)
    assert (z[::7, 1] == 0).all()  # what is missing becomes the mean


def test_zeros_and_ones_stay_and_a_target_is_the_last_column():
    rows = np.array([[1.0, 0.0, 10.0], [3.0, 1.0, 30.0]])
    standard = ColumnSums.of(rows).standard(["a", "b=x", "y"], np.array([True, False]), target=True)
    assert standard == Standard(
        mean=(2.0, 0.0), deviation=(1.0, 1.0), target_mean=20.0, target_deviation=10.0
    )


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ([7.0, 7.0, 7.0], "'a' has one value, 7"),
        ([1e9, 1e9, np.nan], "'a' has one value"),
        ([np.nan] * 3, "no client has a value in the column 'a'"),
    ],
)
def test_a_column_of_which_nothing_is_learned_is_named(column, why):
    sums = ColumnSums.of(np.array([column]).T)
    with pytest.raises(DataError, match=why):
        sums.standard(["a"], np.array([True]))


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_pictures_are_standardised_by_channel(channels):
    """Bytes as 0 to 1, floats as they are; channels come first, as a network takes them."""
    shape = (5, 4, 6, channels) if channels else (5, 4, 6)
    pictures = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    mean, deviation = [0.3, 0.5, 0.7][: channels or 1], [0.2, 1.0, 4.0][: channels or 1]
    standard = Standard(mean=tuple(mean), deviation=tuple(deviation))
    found = standard.apply(pictures)
    assert found.dtype == np.float32 and found.shape == (5, channels or 1, 4, 6)
    wanted = (pictures.reshape(5, 4, 6, -1) / 255 - mean) / deviation
    np.testing.assert_allclose(found, wanted.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6)
    floats = (pictures / 255).astype(np.float32)
    np.testing.assert_allclose(standard.apply(floats), found, rtol=1e-5, atol=1e-6)
    if channels == 1:
        at_once = inputs(pictures, "unit", standard).numpy()
        np.testing.assert_array_equal(at_once, found)


def test_a_standard_that_does_not_fit_is_refused():
    with pytest.raises(DataError, match="pictures of 3 channels .* known of 1"):
        Standard(mean=(0.0,), deviation=(1.0,)).apply(np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(DataError, match="known of 2 features"):
        Standard(mean=(0.0, 0.0), deviation=(1.0, 1.0)).apply(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="above 0"):
        Standard(mean=(0.0,), deviation=(0.0,))
