"""hess_init auto: where IVON's clients begin, and a rate that does not hang on it."""

import numpy as np
import pytest

from fedivon_app.clients.ivon import IvonSettings
from fedivon_app.core.compose import compose
from fedivon_app.core.curvature import FIRST_SHARE
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import settings_of
from tests.clients.helpers import first_payload, instructions, new_client

AUTO = ["client.hess_init=auto", "client.weight_decay=0"]


def settings_with(*words: str, strategy: str = "fedivon"):
    return compose(settings_of, "demo", strategy, [*AUTO, *words])


def moved(*words: str, precision: float = 1.0, strategy: str = "fedivon") -> np.ndarray:
    """How far a client's mean moves in a round, if the server's precision is so many times the
    first one; it sees all of its data in one step, at weights that are as good as the mean."""
    settings = settings_with(
        "client.epochs=1", "client.batch_size=1000", "client.beta2=1", *words, strategy=strategy
    )
    start = first_payload(settings)
    server = start.posterior
    sharp = Posterior(server.mean, np.full_like(server.mean, 1e10 * precision))
    client = new_client(settings)
    reply = client.work(type(start)(sharp, start.buffers), instructions(client))
    return reply.payload.posterior.mean - server.mean


@pytest.mark.parametrize("strategy", ["fedivon", "fedivon-personal"])
def test_the_first_posterior_is_a_fifth_of_the_weights_wide_whatever_ess(strategy):
    for ess in (500, 1e6):
        first = first_payload(settings_with(f"client.ess={ess}", strategy=strategy)).posterior
        size = np.sqrt(np.mean(np.square(first.mean)))
        np.testing.assert_allclose(first.precision**-0.5, FIRST_SHARE * size, rtol=1e-5)


def test_the_prior_is_never_wider_than_the_weight_decay_says():
    client = IvonSettings(hess_init="auto", ess=1e6, weight_decay=0.1)
    assert client.initial_precision(np.full(3, 10.0)) == 1e5


@pytest.mark.parametrize("strategy", ["fedivon", "fedivon-personal"])
def test_a_step_is_the_rate_times_the_gradient_whatever_ess_and_the_hessian(strategy):
    """Where all weights have one precision, a step of IVON is one of gradient descent."""
    share = ["client.prior_share=0"] if strategy == "fedivon-personal" else []
    step = moved("client.ess=500", *share, strategy=strategy)
    assert np.abs(step).max() > 1e-4
    for ess, precision in ((1e6, 1.0), (500, 50.0)):
        other = moved(f"client.ess={ess}", *share, precision=precision, strategy=strategy)
        np.testing.assert_allclose(other, step, rtol=1e-2, atol=2e-6)
    twice = moved("client.ess=500", "client.rescale_lr=false", *share, strategy=strategy)
    assert np.abs(twice).max() < 0.01 * np.abs(step).max()  # 500/1e10 of it


def test_with_unequal_precisions_the_rate_holds_in_the_mean_over_the_weights():
    client = IvonSettings(hess_init="auto", ess=100, weight_decay=0.01)
    precision = np.array([2.0, 5.0, 50.0, 1000.0])
    scale = client.hessian_of(Posterior(np.zeros(4), precision), ess=100) + client.weight_decay
    assert np.mean(scale / (precision / 100)) == pytest.approx(1)
    assert IvonSettings(hess_init=0.3).hessian_of(Posterior(np.zeros(4), precision), ess=9) == 0.3


def test_a_start_at_the_mean_begins_every_round_at_a_fifth_of_the_received_weights():
    client = IvonSettings(hess_init="auto", start="mean", ess=100, weight_decay=0.01)
    received = Posterior(np.full(4, 0.5), np.full(4, 1e9))
    scale = client.hessian_of(received, ess=100) + client.weight_decay
    assert (100 * scale) ** -0.5 == pytest.approx(FIRST_SHARE * 0.5)


def test_an_ess_that_no_precision_could_hold_is_named():
    with pytest.raises(SettingsError, match="client.ess"):
        compose(settings_of, "demo", "fedivon", ["client.ess=1e300"])


@pytest.mark.parametrize("value", ["0", "-1", "automatic"])
def test_hess_init_is_a_positive_number_or_auto(value):
    with pytest.raises(SettingsError, match="client.hess_init"):
        compose(settings_of, "demo", "fedivon", [f"client.hess_init={value}"])
