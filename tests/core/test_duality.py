"""Duals of diagonal Gaussians, by hand."""

import numpy as np
import pytest

from fedivon_app.core.duality import bounded, dual_step, reference
from fedivon_app.core.posterior import Posterior

OWN = Posterior([2.0, -1.0], [3.0, 5.0])
SERVER = Posterior([1.0, 0.5], [2.0, 4.0])


def test_the_natural_step_is_the_difference_of_natural_parameters():
    v, u = dual_step(OWN, SERVER, 0.5)
    np.testing.assert_allclose(v, [0.5 * (6 - 2), 0.5 * (-5 - 2)])
    np.testing.assert_allclose(u, [0.5, 0.5])


def test_the_expectation_step_is_the_difference_of_moments():
    v, u = dual_step(OWN, SERVER, 0.5, "expectation")
    np.testing.assert_allclose(v, [0.5, -0.75])
    np.testing.assert_allclose(u, [-(4 + 1 / 3 - 1 - 0.5), -(1 + 0.2 - 0.25 - 0.25)], rtol=1e-6)


def test_in_round_one_clients_are_tied_to_the_prior():
    prior = reference(SERVER, 0.3, first=True)
    np.testing.assert_array_equal(prior.mean, 0)
    np.testing.assert_allclose(prior.precision, 0.3)
    assert reference(SERVER, 0.3, first=False) is SERVER


def test_a_dual_leaves_the_cavity_positive():
    prior = np.array([1.0, 1.0, 2.0], np.float32)
    allowed, count = bounded(np.array([-3.0, 0.4, 5.0]), prior, rho=0.5)
    np.testing.assert_allclose(allowed, [-3.0, 0.4, 0.99])
    assert count == 1
    assert (0.5 * prior - allowed > 0).all()


@pytest.mark.parametrize("space", ["natural", "expectation"])
def test_a_point_takes_no_dual_step(space):
    for own, server in ((Posterior(OWN.mean), SERVER), (OWN, Posterior(SERVER.mean))):
        with pytest.raises(ValueError, match="a precision is needed here"):
            dual_step(own, server, 0.5, space)
