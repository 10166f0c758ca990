"""The width that a private run's noise leaves, against walks that were walked."""

import numpy as np
import pytest
import torch

from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.ivon import IVON
from fedivon_app.core.noise_width import walk, with_noise_width
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import settings_of

SIZE = 40_000


def settings(strategy, *words):
    words = ["privacy.epsilon=4", "evaluation.clients_every=0", *words]
    return compose(settings_of, "demo", strategy, words)


def record(rate, *noises, merged=True):
    clients = [{"weight": 1 / len(noises), "noise": noise} for noise in noises]
    return {"learning_rate": rate, "clients": clients, "merged": merged}


def test_the_second_half_of_the_rounds_counts():
    rounds = [record(9.0, 5.0), record(2.0, 3.0, 3.0), record(1.0, 4.0), record(7.0, 1.0)]
    assert walk(rounds) == pytest.approx(16 + 49)
    assert walk(rounds[:2]) == pytest.approx(4 * 2 * 9 / 4)
    assert walk([record(1.0, 4.0, merged=False)]) == walk([]) == 0


def test_a_point_becomes_as_wide_as_plain_steps_walk():
    torch.manual_seed(0)
    rate, sigma, steps = 0.5, 0.1, 20
    walked = torch.zeros(SIZE)
    for _ in range(steps):
        walked -= rate * sigma * torch.randn(SIZE)
    asked = settings("fedavg", "client.optimizer=sgd")
    found = with_noise_width(
        Payload(Posterior(np.zeros(SIZE))), asked, [record(rate, sigma * steps**0.5)]
    )
    assert found.posterior.variance.mean() == pytest.approx(walked.var().item(), rel=0.05)


def test_a_posterior_gains_what_ivons_steps_walk():
    torch.manual_seed(0)
    ess, decay, start = 1000.0, 1e-4, 0.5
    asked = settings(
        "fedivon", f"client.ess={ess}", f"client.weight_decay={decay}", f"client.hess_init={start}"
    )
    weights = torch.nn.Parameter(torch.zeros(SIZE))
    rate, sigma, steps = 0.01, 0.1, 400
    optimizer = IVON(
        [weights], rate, ess, hess_init=start, weight_decay=decay, beta2=1.0, gradient_noise=sigma
    )
    for _ in range(steps):
        with optimizer.sampled_params(train=True):
            weights.grad.normal_(std=sigma)
        optimizer.step()
    payload = Payload(Posterior(np.zeros(SIZE), np.full(SIZE, ess * (start + decay))))
    found = with_noise_width(payload, asked, [record(rate, sigma * steps**0.5)]).posterior
    gained = found.variance - payload.posterior.variance
    assert gained.mean() == pytest.approx(optimizer.posterior().mean.var(), rel=0.1)


def test_who_does_not_know_or_want_it_is_left_alone():
    point = Payload(Posterior(np.zeros(3)))
    rounds = [record(1.0, 1.0)]
    assert with_noise_width(point, settings("fedavg", "client.optimizer=adam"), rounds) is point
    sgd = ("client.optimizer=sgd", "privacy.noise_in_posterior=false")
    assert with_noise_width(point, settings("fedavg", *sgd), rounds) is point
    public = compose(settings_of, "demo", "fedavg", ["client.optimizer=sgd"])
    assert with_noise_width(point, public, rounds) is point
    assert with_noise_width(point, settings("fedavg", "client.optimizer=sgd"), []) is point
