"""The accountant, against dp-accounting's numbers, closed forms and the integral itself."""

from math import inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from fedivon_app.core.accountant import (
    NO_COST,
    ORDERS,
    epsilon_of,
    noise_for,
    pure_cost,
    step_cost,
)

# Made with dp-accounting 0.6.0: RdpAccountant() and, for what is really lost, PLDAccountant(
# value_discretization_interval=1e-4), each with
# SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps), at rate 1 without
# sampling, and get_epsilon(delta). The columns: noise multiplier, rate, steps, delta, epsilon of
# RdpAccountant, epsilon of PLDAccountant.
DP_ACCOUNTING = [
    (1.0, 0.1, 100, 1e-05, 7.903850223578231, 7.0466),
    (1.0, 0.1, 100, 1e-06, 8.921391652814453, 8.0586),
    (1.0, 0.1, 300, 1e-05, 13.709583315962401, 12.3979),
    (1.0, 0.1, 300, 1e-06, 15.131612137728737, 13.8564),
    (2.0, 0.1, 300, 1e-05, 4.5643015637536575, 4.1833),
    (2.0, 0.1, 300, 1e-06, 5.082097763492782, 4.7128),
    (4.0, 0.1, 300, 1e-05, 1.9331049544551664, 1.7699),
    (4.0, 0.1, 300, 1e-06, 2.1708876841116655, 2.0132),
    (1.0, 0.01, 3000, 1e-05, 3.5107876952500146, 3.1923),
    (1.0, 0.01, 3000, 1e-06, 3.942263563878945, 3.6255),
    (0.8, 0.010666666666666666, 1880, 1e-05, 5.048442542502294, 4.4644),
    (0.8, 0.010666666666666666, 1880, 1e-06, 5.742088418950265, 5.1373),
    (1.1, 0.004266666666666667, 14000, 1e-05, 2.590376966678199, 2.3759),
    (1.1, 0.004266666666666667, 14000, 1e-06, 2.8971562998911646, 2.6904),
    (0.6, 0.01, 100, 1e-05, 4.831306715068717, 3.8156),
    (0.6, 0.01, 100, 1e-06, 5.790717170482903, 4.7512),
    (0.7, 0.001, 1000, 1e-05, 1.6531905373619535, 0.609),
    (0.7, 0.001, 1000, 1e-06, 2.0643664468251757, 0.9784),
    (1.5, 0.5, 20, 1e-05, 9.192854950025236, 8.3907),
    (1.5, 0.5, 20, 1e-06, 10.200944817171536, 9.4178),
    (3.0, 1.0, 10, 1e-05, 5.023949750348651, 4.653),
    (3.0, 1.0, 10, 1e-06, 5.5429213799302115, 5.189),
    (10.0, 1.0, 100, 1e-05, 4.728507067217623, 4.3772),
    (10.0, 1.0, 100, 1e-06, 5.2215396311544175, 4.8866),
    (20.0, 0.2, 1000, 1e-05, 1.312727494638142, 1.203),
    (20.0, 0.2, 1000, 1e-06, 1.4771410119978525, 1.3721),
    (1.3, 0.02, 5000, 1e-05, 6.419981148265638, 5.9269),
    (1.3, 0.02, 5000, 1e-06, 7.085959653866313, 6.6119),
    (5.0, 0.05, 20000, 1e-05, 7.1793146027233785, 6.6655),
    (5.0, 0.05, 20000, 1e-06, 7.879873714538705, 7.3897),
    (0.9, 0.05, 50, 1e-05, 4.02828686289965, 3.3842),
    (0.9, 0.05, 50, 1e-06, 4.719108161825794, 4.0552),
    (2.5, 0.3, 60, 1e-05, 4.866652185829235, 4.4532),
    (2.5, 0.3, 60, 1e-06, 5.423581019720633, 5.021),
]


@pytest.mark.parametrize(("noise", "rate", "steps", "delta", "renyi", "lost"), DP_ACCOUNTING)
def test_epsilon_is_dp_accountings_and_never_below(noise, rate, steps, delta, renyi, lost):
    found = epsilon_of(steps * step_cost(noise, rate), delta)
    assert renyi <= found <= renyi * 1.01
    assert found > lost


@pytest.mark.parametrize("order", [1.5, 2.0, 4.7, 16.0])
@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.1), (0.7, 0.01), (3.0, 0.6)])
def test_a_step_costs_no_less_than_the_divergence_itself(order, noise, rate):
    """The integral of the definition: equal at whole orders, bounded from above at others."""

    def density(x):
        ratio = np.logaddexp(np.log1p(-rate), log(rate) + (2 * x - 1) / (2 * noise**2))
        return np.exp(order * ratio - x**2 / (2 * noise**2)) / (noise * np.sqrt(2 * np.pi))

    reach = 14 * noise
    integral = sum(
        quad(density, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in [(-reach, 0), (0, order + reach)]
    )
    exact = log(integral) / (order - 1)
    (found,) = step_cost(noise, rate)[np.isclose(ORDERS, order)]
    assert found >= exact
    if order % 1 == 0:
        assert found == pytest.approx(exact, rel=1e-6)


def test_all_examples_in_every_step_cost_what_a_gaussian_does():
    np.testing.assert_allclose(step_cost(2.0, 1.0), ORDERS / 8)
    np.testing.assert_allclose(step_cost(2.0, 1 - 1e-12), ORDERS / 8, rtol=1e-3)


def test_nothing_costs_nothing_and_no_noise_costs_everything():
    assert epsilon_of(NO_COST, 1e-5) == 0
    assert epsilon_of(step_cost(0.0, 0.1), 1e-5) == inf


def test_a_pure_release_costs_at_most_its_epsilon():
    assert epsilon_of(pure_cost(0.1), 1e-5) < 0.5  # the conversion to a delta is not free
    assert (pure_cost(3.0) <= 3.0).all()
    assert pure_cost(0.1)[np.isclose(ORDERS, 2)] == pytest.approx(0.01)


@settings(max_examples=12, deadline=None)
@given(
    epsilon=st.floats(0.3, 10),
    rate=st.sampled_from([0.01, 0.1, 1.0]),
    steps=st.integers(1, 2000),
)
def test_the_noise_for_an_epsilon_is_just_enough(epsilon, rate, steps):
    noise = noise_for(epsilon, 1e-5, rate=rate, steps=steps)
    assert epsilon_of(steps * step_cost(noise, rate), 1e-5) <= epsilon
    if noise > 0.2:
        assert epsilon_of(steps * step_cost(noise * 0.99, rate), 1e-5) > epsilon


def test_what_was_spent_before_asks_for_more_noise():
    alone = noise_for(2, 1e-5, rate=0.1, steps=100)
    after = noise_for(2, 1e-5, rate=0.1, steps=100, before=pure_cost(0.2))
    assert after > alone
    with pytest.raises(ValueError, match="spent before the first step"):
        noise_for(2, 1e-5, rate=0.1, steps=100, before=100 * pure_cost(0.5))


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5])
def test_a_rate_is_a_probability(rate):
    with pytest.raises(ValueError, match="sampling rate"):
        step_cost(1.0, rate)


@pytest.mark.parametrize("delta", [0, 1, -1e-5])
def test_delta_lies_between_0_and_1(delta):
    with pytest.raises(ValueError, match="delta"):
        epsilon_of(NO_COST, delta)
