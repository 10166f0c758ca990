"""Personal models that are mean-field Gaussians.

What they become, what travels, and what does not.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.laplace import curvature_diagonal
from fedivon_app.core.models import build
from fedivon_app.core.posterior import Posterior
from fedivon_app.datasets.base import Source
from tests.clients import helpers
from tests.clients.helpers import (
    BATCH_NORM,
    SMALL,
    SOURCE,
    Asked,
    Trained,
    instructions,
    remember,
    trained,
)
from tests.simulated import federate, initial_network

METHODS = ["local-bnn", "pfedhb", "pfedbayes", "pfedvem"]


def client_of(name: str, folder: Path, *words: str) -> Asked:
    return helpers.client_of(name, folder, *SMALL, *words)


def fit(asked: Asked, start: Payload | None = None, own: Payload | None = None) -> Trained:
    """What a round makes of the server's model, or of `start` in its place.

    `own` is the PM that the client has from the round before.
    """
    begin = asked.start if start is None else start
    if own is None:
        return trained(asked.client, begin)
    remember(asked.client, own)
    return trained(asked.client, begin, number=2)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other)


def regression() -> Source:
    """Noisy labels of one client.

    They are for a logistic regression whose posterior is narrow enough to be known.
    """
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 2)).astype(np.float32)
    y = (x @ [1.0, -0.5] + rng.logistic(size=300) > 0).astype(np.int64)
    return Source("regression", x, y, x, y, 2)


PRIOR = 10.0  # precision
STEPS = {"mc_samples": 4, "sigma_init": PRIOR**-0.5}
RATE = {"head_learning_rate": 0.015}
EXACT = {  # many steps on all examples at once, under a prior around the first weights, or around 0
    "local-bnn": {
        "epochs": 600,
        "batch_size": 300,
        "learning_rate": 0.015,
        "prior_variance": 1 / PRIOR,
    },
    "pfedhb": {"head_steps": 600, **RATE},
    "pfedbayes": {
        "minibatches": 1,
        "batch_size": 300,
        "personal_steps": 600,
        "zeta": 1,
        "learning_rate": 0.015,
    },
    "pfedvem": {"head_steps": 600, "optimizer": "adam", **RATE},
}


@pytest.mark.parametrize("name", METHODS)
def test_on_logistic_regression_the_personal_model_is_the_mean_field_posterior(name, tmp_path):
    """Its mean is where the gradient of summed loss and prior vanishes.

    Its precision is the diagonal of the loss' curvature and that of the prior.
    """
    source = regression()
    merge = {"head_init": None} if name == "pfedvem" else {}
    (own,) = federate(name, 1, STEPS | EXACT[name], merge, tmp_path, source, 1).personal
    flat = Flat(build("linear", source.shape, 2))
    flat.load(own.posterior.mean)
    inputs = torch.from_numpy(source.x_train)
    labels = torch.from_numpy(source.y_train)
    expected = PRIOR + 300 * curvature_diagonal(flat, inputs, labels).numpy()
    np.testing.assert_allclose(own.posterior.precision, expected, rtol=0.15)
    center = 0.0 if name == "local-bnn" else torch.from_numpy(initial_network(source).mean())
    cross_entropy(flat.module(inputs), labels, reduction="sum").backward()
    slope = flat.gradient + PRIOR * (flat.vector - center)
    in_deviations = slope / torch.from_numpy(expected).sqrt()
    assert float(in_deviations.abs().max()) < 0.5


LEARN = {"learning_rate": 0.02, "mc_samples": 2, "sigma_init": 0.1}
OPPOSED = {
    "local-bnn": {"epochs": 10, "kl_weight": 0.1},
    "pfedhb": {"epochs": 10, "head_kl_weight": 0.01},
    "pfedbayes": {"minibatches": 10, "zeta": 1.0},
    "pfedvem": {"epochs": 10, "optimizer": "adam"},
}


@pytest.mark.parametrize("name", METHODS)
def test_clients_that_contradict_each_other_are_both_right_by_themselves(name, tmp_path):
    client = LEARN | OPPOSED[name]
    end = federate(name, 8, client, {}, tmp_path, SOURCE, clients=2, model="mlp", sizes=[8])
    own = [helpers.accuracy(model, k, sizes=[8]) for k, model in enumerate(end.personal)]
    assert min(own) > 0.95
    common = [helpers.accuracy(Payload(end.server), k, sizes=[8]) for k in range(2)]
    assert sum(common) == pytest.approx(1)


def test_a_network_of_ones_own_goes_on_from_itself_and_sends_back_what_came(tmp_path):
    asked = client_of("local-bnn", tmp_path, *BATCH_NORM, "client.learning_rate=0.01")
    start = asked.start
    first = fit(asked)
    reply = first.sent
    own = first.own
    assert same(reply.posterior.mean, start.posterior.mean)
    assert same(reply.posterior.precision, start.posterior.precision)
    assert same(reply.buffers, start.buffers) and not same(own.buffers, start.buffers)
    assert (own.posterior.mean != start.posterior.mean).mean() > 0.9
    elsewhere = Payload(
        Posterior(start.posterior.mean + 3, start.posterior.precision), start.buffers + 1
    )
    again = fit(asked, own=own).own
    from_elsewhere = fit(asked, elsewhere, own).own
    assert same(again.posterior.mean, from_elsewhere.posterior.mean)  # whatever the server says
    assert same(again.buffers, from_elsewhere.buffers)
    assert np.abs(again.posterior.mean - own.posterior.mean).max() < 0.2


def moved(own: Payload, start: Payload, part) -> list[float]:
    """How far the mean and the logarithm of the precision moved at most."""
    means = np.abs(own.posterior.mean - start.posterior.mean)
    ratios = np.abs(np.log(own.posterior.precision / start.posterior.precision))
    return [float(means[part].max()), float(ratios[part].max())]


@pytest.mark.parametrize(
    ("order", "learned"), [("head-base", True), ("base-head", True), ("base", False)]
)
def test_pfedhb_learns_the_parts_of_its_order(order, learned, tmp_path):
    asked = client_of("pfedhb", tmp_path, f"client.order={order}")
    flat = asked.client.flat
    found = fit(asked)
    own = found.own.posterior
    assert (min(moved(found.own, asked.start, flat.part("head"))) > 1e-3) == learned
    assert min(moved(found.own, asked.start, flat.part("base"))) > 1e-3
    assert same(found.sent.posterior.mean, own.mean)
    assert same(found.sent.posterior.precision, own.precision)
    assert all(parameter.requires_grad for parameter in flat.module.parameters())


def test_orders_of_pfedhb_differ(tmp_path):
    means = [
        fit(client_of("pfedhb", tmp_path / order, f"client.order={order}")).sent.posterior.mean
        for order in ("head-base", "base-head")
    ]
    assert not same(means[0], means[1])


def test_pfedhb_begins_at_the_servers_base_and_at_a_head_of_its_own(tmp_path):
    asked = client_of("pfedhb", tmp_path, "client.learning_rate=1e-6")
    server = asked.start.posterior
    head = asked.client.flat.part("head")
    base = asked.client.flat.part("base")
    other = Posterior(np.full(len(server), 7.0), np.full(len(server), 1e4))
    own = fit(asked, own=Payload(other)).own.posterior
    np.testing.assert_allclose(own.mean[head], 7.0, atol=1e-3)
    np.testing.assert_allclose(own.precision[head], 1e4, rtol=1e-2)
    np.testing.assert_allclose(own.mean[base], server.mean[base], atol=1e-3)
    np.testing.assert_allclose(own.precision[base], server.precision[base], rtol=1e-2)


def test_pfedhb_with_strong_divergences_comes_to_the_servers_posterior(tmp_path):
    """A head that was elsewhere is drawn to the server's, whatever the loss says.

    Without a divergence it stays.
    """
    distances = []
    for weight in (0.0, 1e8):
        words = [f"client.{part}_kl_weight={weight}" for part in ("head", "base")]
        words += ["client.optimizer=sgd", "client.learning_rate=1e-12"]
        asked = client_of("pfedhb", tmp_path / str(weight), *words)
        server = asked.start.posterior
        away = Payload(Posterior(server.mean + 0.5, server.precision))
        own = fit(asked, own=away).own.posterior
        head = asked.client.flat.part("head")
        distances.append(np.abs(own.mean - server.mean)[head].max())
    assert distances[0] == pytest.approx(0.5, abs=1e-3) and distances[1] < 0.1


@pytest.mark.parametrize("shared", ["both", "base"])
def test_a_head_of_pfedhb_travels_only_if_it_is_shared(shared, tmp_path):
    asked = client_of("pfedhb", tmp_path, f"merge.shared={shared}")
    server = asked.start.posterior
    head = asked.client.flat.part("head")
    other = Posterior(server.mean + 0.3, server.precision * 2)
    replies = [fit(asked, own=own).sent.posterior for own in (asked.start, Payload(other))]
    echoed = [same(reply.mean[head], server.mean[head]) for reply in replies]
    echoed += [same(reply.precision[head], server.precision[head]) for reply in replies]
    assert echoed == [shared == "base"] * 4


def test_pfedhb_takes_a_head_that_lies_in_the_middle_of_the_network(tmp_path):
    """The base is then in two pieces."""
    asked = client_of("pfedhb", tmp_path, "client.head=base.3")
    assert isinstance(asked.client.flat.part("base", "base.3"), np.ndarray)
    own = fit(asked).own
    assert min(moved(own, asked.start, slice(None))) > 1e-3
    assert np.isfinite(own.posterior.mean).all()
    assert (own.posterior.mean != asked.start.posterior.mean).mean() > 0.8


def test_pfedbayes_sends_a_copy_of_the_servers_posterior_that_went_to_the_personal_one(tmp_path):
    """The PM stays where it is, at a rate of next to nothing.

    The minimum of KL(PM || copy) is the PM.
    """
    words = [
        "client.minibatches=800",
        "client.batch_size=4",
        "client.personal_steps=1",
        "client.learning_rate=0.01",
        "client.personal_learning_rate=1e-9",
    ]
    asked = client_of("pfedbayes", tmp_path, *words)
    server = asked.start.posterior
    rng = np.random.default_rng(0)
    offset = rng.uniform(-0.2, 0.2, len(server))
    other = Posterior(server.mean + offset, rng.uniform(100, 800, len(server)))
    found = fit(asked, own=Payload(other))
    np.testing.assert_allclose(found.own.posterior.mean, other.mean, atol=1e-4)
    np.testing.assert_allclose(found.sent.posterior.mean, other.mean, atol=0.02)
    np.testing.assert_allclose(found.sent.posterior.precision, other.precision, rtol=0.2)


def losses_of(asked: Asked) -> int:
    """How many losses a client computes in a round."""
    task = asked.client.task(instructions(asked.client))
    asked.client.train(asked.start, task)
    return task.losses.count


def test_pfedbayes_takes_as_many_minibatches_as_it_is_told(tmp_path):
    """5 of them with 3 steps and 2 draws each, whatever is in an epoch.

    Without a number it takes all of the epochs'.
    """
    told = ["client.minibatches=5", "client.personal_steps=3", "client.mc_samples=2"]
    assert losses_of(client_of("pfedbayes", tmp_path, *told)) == 5 * 3 * 2
    words = ["client.minibatches=null", "client.epochs=2"]
    asked = client_of("pfedbayes", tmp_path / "all", *words)
    size = len(asked.client.partition.train)
    assert losses_of(asked) == 2 * -(-size // asked.client.settings.client.batch_size) * 5


def test_pfedvem_tells_how_far_its_head_is_from_the_servers_before_it_trains(tmp_path):
    """rho^2 = mean of var_k + (m_k - mu)^2 over the head.

    In round 1 it is the square of its first deviation.
    """
    asked = client_of("pfedvem", tmp_path, "client.sigma_init=0.5")
    found = fit(asked)
    own = found.own.posterior
    assert found.reply.metrics["head_variance"] == pytest.approx(0.25)
    assert set(asked.client.codec.encode(found.sent)) == {"mean"}  # no variances
    head = asked.client.flat.part("head")
    server = Payload(Posterior(asked.start.posterior.mean + 0.7))
    expected = own.variance[head] + np.square(own.mean - server.posterior.mean)[head]
    second = fit(asked, server, found.own).reply.metrics
    assert second["head_variance"] == pytest.approx(float(expected.mean()), rel=1e-4)


def test_pfedvem_has_a_gaussian_head_on_a_base_that_is_a_point(tmp_path):
    asked = client_of("pfedvem", tmp_path)
    module = asked.client.flat.module
    head = asked.client.flat.part("head")
    base = asked.client.flat.part("base")
    found = fit(asked)
    own = found.own.posterior
    assert same(own.mean, found.sent.posterior.mean)
    assert own.variance[base].max() < 1e-30
    assert own.precision[head].min() > 0.1 and own.precision[head].max() < 1e4
    assert isinstance(module.head, nn.Linear)  # it was away while the base was computed
    assert all(parameter.requires_grad for parameter in module.parameters())
    other = Posterior(own.mean + 5, own.precision)
    slow = client_of("pfedvem", tmp_path / "still", "client.learning_rate=1e-9")
    still = fit(slow, own=Payload(other)).own.posterior
    np.testing.assert_allclose(still.mean[base], asked.start.posterior.mean[base], atol=1e-5)
    np.testing.assert_allclose(still.mean[head], other.mean[head], atol=1e-3)


def test_heads_drawn_together_teach_the_base_as_one_by_one(tmp_path):
    """The same random numbers, and the mean of the losses under each draw."""
    words = [
        "client.head_steps=0",
        "client.epochs=1",
        "client.learning_rate=0.05",
        "client.mc_samples=3",
    ]
    asked = client_of("pfedvem", tmp_path, *words)
    client = asked.client
    server = asked.start.posterior
    flat = client.flat
    head = flat.part("head")
    base = flat.part("base")
    told = instructions(client, learning_rate=0.05)
    flat.load(server.mean)
    together = client.train(asked.start, client.task(told)).posterior.mean
    flat.load(server.mean)
    velocity = torch.zeros_like(flat.vector)
    for inputs, labels in client.task(told).batches():
        flat.zero_gradient()
        for _ in range(3):
            noise = torch.randn(len(flat.vector[head]))
            flat.vector[head] = torch.tensor(server.mean[head]) + noise
            cross_entropy(flat.module(inputs), labels).div(3).backward()
        velocity = 0.9 * velocity + flat.gradient
        flat.vector[base] -= 0.05 * velocity[base]
    np.testing.assert_allclose(together[base], flat.mean()[base], atol=1e-4)
    assert np.abs(together[base] - server.mean[base]).max() > 0.05


def test_a_base_under_a_head_without_doubt_learns_by_plain_sgd(tmp_path):
    words = [
        "client.sigma_init=1e-5",
        "client.head_steps=0",
        "client.learning_rate=0.05",
        "client.mc_samples=3",
    ]
    asked = client_of("pfedvem", tmp_path, *words)
    reply = fit(asked).sent.posterior
    task = asked.client.task(instructions(asked.client, learning_rate=0.05))
    flat = asked.client.flat
    flat.load(asked.start.posterior.mean)
    optimizer = torch.optim.SGD(flat.module.base.parameters(), lr=0.05, momentum=0.9)
    for inputs, labels in task.batches():
        flat.zero_gradient()
        cross_entropy(flat.module(inputs), labels).backward()
        optimizer.step()
    np.testing.assert_allclose(reply.mean, flat.mean(), atol=2e-3)
    assert np.abs(reply.mean - asked.start.posterior.mean).max() > 0.05


@pytest.mark.parametrize("name", METHODS)
def test_networks_with_batch_norm_keep_its_statistics_with_the_personal_model(name, tmp_path):
    found = fit(client_of(name, tmp_path, *BATCH_NORM))
    own = found.own.buffers
    assert own.shape == found.sent.buffers.shape and np.isfinite(own).all()
    if name != "local-bnn":
        assert same(own, found.sent.buffers)
