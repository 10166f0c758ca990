"""What a learned hessian begins with, and the numbers that tell what was learned."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core.curvature import (
    FIRST_SHARE,
    distance_in_sigmas,
    first_precision,
    spread,
    typical_precision,
)
from fedivon_app.core.dense import Dense
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.posterior import Posterior


def test_the_first_sigma_is_a_share_of_the_weights_root_mean_square():
    weights = np.array([3.0, -4.0, 0.0, 5.0], np.float32)  # squares 9, 16, 0, 25: mean 12.5
    assert first_precision(weights) ** -0.5 == pytest.approx(FIRST_SHARE * 12.5**0.5)


def test_weights_that_are_all_zero_give_no_measure():
    with pytest.raises(SettingsError, match="hess_init is auto.* give it a number"):
        first_precision(np.zeros(3, np.float32))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20))
def test_divided_by_precisions_the_typical_one_is_1_in_the_mean(values):
    precision = np.array(values, np.float32)
    typical = typical_precision(precision)
    assert np.mean(typical / precision.astype(np.float64)) == pytest.approx(1)
    assert precision.min() * 0.999 <= typical <= precision.max() * 1.001


def test_the_spread_has_quantiles_of_all_weights_and_of_every_tensor():
    precision = np.concatenate([np.arange(101.0), [7.0, 9.0]]) + 1
    found = spread(
        Posterior(np.zeros(103), precision), {"weight": slice(0, 101), "bias": slice(101, 103)}
    )
    assert list(found) == ["all", "weight", "bias"]
    assert found["weight"] == {"min": 1, "p1": 2, "p50": 51, "p99": 100, "max": 101}
    assert (found["bias"]["min"], found["bias"]["p50"], found["bias"]["max"]) == (8, 9, 10)
    assert found["all"]["max"] == 101
    assert spread(Posterior(np.zeros(3)), {}) == {}


def test_the_spread_of_a_full_covariance_is_that_of_the_weights_by_themselves():
    covariance = np.array([[2.0, 1.0], [1.0, 4.0]])
    found = spread(Dense(np.zeros(2), np.linalg.inv(covariance)), {})
    assert (found["all"]["min"], found["all"]["max"]) == (0.25, 0.5)


def test_a_distance_in_sigmas_is_a_root_mean_square():
    posterior = Posterior([1.0, 2.0], [4.0, 100.0])  # sigmas 0.5 and 0.1
    assert distance_in_sigmas(posterior, np.array([2.0, 2.4])) == pytest.approx(
        ((2**2 + 4**2) / 2) ** 0.5
    )
