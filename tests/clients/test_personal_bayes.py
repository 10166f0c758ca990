"""Personal models that are mean-field Gaussians: what they become, what travels, and what does not."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedivon_app.clients.state import keep_personal, recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.laplace import curvature_diagonal
from fedivon_app.core.models import build
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.compose import compose
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import partition_of
from fedivon_app.methods import method, settings_of
from tests.clients.helpers import first_payload
from tests.simulated import federate, initial_weights

METHODS = ["local-bnn", "pfedhb", "pfedbayes", "pfedvem"]
EACH = 40
SMALL = ["model.options={sizes: [12, 8], activation: tanh}"]


def conflict() -> Source:
    """Two clients with the same inputs and opposite labels: whatever one model says is right for half of them."""
    x = np.random.default_rng(0).standard_normal((EACH, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    return Source("conflict", np.r_[x, x], np.r_[y, 1 - y], np.r_[x, x], np.r_[y, 1 - y], 2)


def client_of(name, folder, *words):
    """Of partition 3 of the digits, and what it is sent in round 1."""
    settings = compose(settings_of, "demo", name, [*SMALL, *words])
    partition = partition_of(settings, {"partition-id": 3, "num-partitions": 20})
    return method(name).client(settings, partition, None, folder), first_payload(settings)


def fit(one, start, own=None):
    """The client's reply, its PM and its metrics; `own` is the PM that it has from the round before."""
    arrays = one.codec.encode(start)
    number = 1 if own is None else 2
    rate = one.settings.client.learning_rate
    config = {
        "keys": list(arrays),
        "round": number,
        "learning-rate": rate,
        "last-merged": number - 1,
    }
    if own is not None:
        kept = {}
        keep_personal(kept, own)
        one.memory(config).keep(1, kept)
    out, _, metrics = one.fit(list(arrays.values()), config)
    reply = one.codec.decode(dict(zip(arrays, out, strict=True)), start)
    return reply, recall_personal(one.memory(config).recall(number)), metrics


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other)


def regression() -> Source:
    """Noisy labels of one client, for a logistic regression whose posterior is narrow enough to be known."""
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
    """Where the gradient of summed loss and prior vanishes, with the curvatures' diagonal and its own for precision."""
    source = regression()
    merge = {"head_init": None} if name == "pfedvem" else {}
    (own,) = federate(name, 1, STEPS | EXACT[name], merge, tmp_path, source, 1).personal
    flat = Flat(build("linear", source.shape, 2))
    flat.load(own.posterior.mean)
    inputs = torch.from_numpy(source.x_train)
    labels = torch.from_numpy(source.y_train)
    expected = PRIOR + 300 * curvature_diagonal(flat, inputs, labels).numpy()
    np.testing.assert_allclose(own.posterior.precision, expected, rtol=0.15)
    center = 0.0 if name == "local-bnn" else torch.from_numpy(initial_weights(source))
    cross_entropy(flat.module(inputs), labels, reduction="sum").backward()
    slope = flat.gradient + PRIOR * (flat.vector - center)
    assert (
        float((slope / torch.from_numpy(expected).sqrt()).abs().max()) < 0.5
    )  # of a standard deviation, or less


LEARN = {"learning_rate": 0.02, "mc_samples": 2, "sigma_init": 0.1}
OPPOSED = {
    "local-bnn": {"epochs": 10, "kl_weight": 0.1},
    "pfedhb": {"epochs": 10, "head_kl_weight": 0.01},
    "pfedbayes": {"minibatches": 10, "zeta": 1.0},
    "pfedvem": {"epochs": 10, "optimizer": "adam"},
}


@pytest.mark.parametrize("name", METHODS)
def test_clients_that_contradict_each_other_are_both_right_by_themselves(name, tmp_path):
    source = conflict()
    end = federate(name, 8, LEARN | OPPOSED[name], {}, tmp_path, source, 2, "mlp", sizes=[8])
    flat = Flat(build("mlp", source.shape, 2, sizes=[8]))
    found = []
    for k, mean in enumerate(
        [*(own.posterior.mean for own in end.personal), end.server.mean, end.server.mean]
    ):
        rows = slice(k % 2 * EACH, (k % 2 + 1) * EACH)
        flat.load(mean)
        guess = flat.module(torch.from_numpy(source.x_train[rows])).argmax(1).numpy()
        found.append(float((guess == source.y_train[rows]).mean()))
    assert min(found[:2]) > 0.95
    assert found[2] + found[3] == pytest.approx(1)


def test_a_network_of_ones_own_goes_on_from_itself_and_sends_back_what_came(tmp_path):
    batch_norm = [
        "model.name=resnet",
        "model.options={channels: [4], blocks: 1}",
        "client.learning_rate=0.01",
    ]
    one, start = client_of("local-bnn", tmp_path, *batch_norm)
    reply, own, _ = fit(one, start)
    assert same(reply.posterior.mean, start.posterior.mean)
    assert same(reply.posterior.precision, start.posterior.precision)
    assert same(reply.buffers, start.buffers) and not same(own.buffers, start.buffers)
    assert (own.posterior.mean != start.posterior.mean).mean() > 0.9
    elsewhere = Payload(
        Posterior(start.posterior.mean + 3, start.posterior.precision), start.buffers + 1
    )
    again, from_elsewhere = (fit(one, server, own)[1] for server in (start, elsewhere))
    assert same(again.posterior.mean, from_elsewhere.posterior.mean)  # whatever the server says
    assert same(again.buffers, from_elsewhere.buffers)
    assert np.abs(again.posterior.mean - own.posterior.mean).max() < 0.2


def moved(own, start, part):
    return [
        np.abs(np.log(now / before) if name == "precision" else now - before)[part].max()
        for name in ("mean", "precision")
        for now, before in [(getattr(own.posterior, name), getattr(start.posterior, name))]
    ]


@pytest.mark.parametrize(
    ("order", "learned"), [("head-base", True), ("base-head", True), ("base", False)]
)
def test_pfedhb_learns_the_parts_of_its_order(order, learned, tmp_path):
    one, start = client_of("pfedhb", tmp_path, f"client.order={order}")
    reply, own, _ = fit(one, start)
    head, base = (one.flat.part(part) for part in ("head", "base"))
    assert (min(moved(own, start, head)) > 1e-3) == learned
    assert min(moved(own, start, base)) > 1e-3
    assert same(reply.posterior.mean, own.posterior.mean) and same(
        reply.posterior.precision, own.posterior.precision
    )
    assert all(parameter.requires_grad for parameter in one.flat.module.parameters())


def test_orders_of_pfedhb_differ(tmp_path):
    replies = [
        fit(*client_of("pfedhb", tmp_path / o, f"client.order={o}"))[0]
        for o in ("head-base", "base-head")
    ]
    assert not same(*(reply.posterior.mean for reply in replies))


def test_pfedhb_begins_at_the_servers_base_and_at_a_head_of_its_own(tmp_path):
    one, start = client_of("pfedhb", tmp_path, "client.learning_rate=1e-6")
    head, base = (one.flat.part(part) for part in ("head", "base"))
    other = Posterior(np.full(len(one.flat), 7.0), np.full(len(one.flat), 1e4))
    _, own, _ = fit(one, start, Payload(other))
    np.testing.assert_allclose(own.posterior.mean[head], 7.0, atol=1e-3)
    np.testing.assert_allclose(own.posterior.precision[head], 1e4, rtol=1e-2)
    np.testing.assert_allclose(own.posterior.mean[base], start.posterior.mean[base], atol=1e-3)
    np.testing.assert_allclose(
        own.posterior.precision[base], start.posterior.precision[base], rtol=1e-2
    )


def test_pfedhb_with_strong_divergences_comes_to_the_servers_posterior(tmp_path):
    """A head that was elsewhere is drawn to the server's, whatever the loss says; without a divergence it stays."""
    distances = []
    for weight in (0.0, 1e8):
        words = [f"client.{part}_kl_weight={weight}" for part in ("head", "base")]
        words += ["client.optimizer=sgd", "client.learning_rate=1e-12"]
        one, start = client_of("pfedhb", tmp_path / str(weight), *words)
        away = Payload(Posterior(start.posterior.mean + 0.5, start.posterior.precision))
        _, own, _ = fit(one, start, away)
        head = one.flat.part("head")
        distances.append(np.abs(own.posterior.mean - start.posterior.mean)[head].max())
    assert distances[0] == pytest.approx(0.5, abs=1e-3) and distances[1] < 0.1


@pytest.mark.parametrize("shared", ["both", "base"])
def test_a_head_of_pfedhb_travels_only_if_it_is_shared(shared, tmp_path):
    one, start = client_of("pfedhb", tmp_path, f"merge.shared={shared}")
    head = one.flat.part("head")
    other = Posterior(start.posterior.mean + 0.3, start.posterior.precision * 2)
    replies = [fit(one, start, own)[0].posterior for own in (start, Payload(other))]
    echoed = [same(r.mean[head], start.posterior.mean[head]) for r in replies]
    echoed += [same(r.precision[head], start.posterior.precision[head]) for r in replies]
    assert echoed == [shared == "base"] * 4


def test_pfedhb_takes_a_head_that_lies_in_the_middle_of_the_network(tmp_path):
    """The base is then in two pieces."""
    one, start = client_of("pfedhb", tmp_path, "client.head=base.3")
    assert isinstance(one.flat.part("base", "base.3"), np.ndarray)
    _, own, _ = fit(one, start)
    assert min(moved(own, start, slice(None))) > 1e-3 and np.isfinite(own.posterior.mean).all()
    assert (own.posterior.mean != start.posterior.mean).mean() > 0.8


def test_pfedbayes_sends_a_copy_of_the_servers_posterior_that_went_to_the_personal_one(tmp_path):
    """The PM stays where it is (a rate of next to nothing); the minimum of KL(PM || copy) is the PM."""
    words = [
        "client.minibatches=800",
        "client.batch_size=4",
        "client.personal_steps=1",
        "client.learning_rate=0.01",
    ]
    one, start = client_of("pfedbayes", tmp_path, "client.personal_learning_rate=1e-9", *words)
    rng = np.random.default_rng(0)
    offset = rng.uniform(-0.2, 0.2, len(one.flat))
    other = Posterior(start.posterior.mean + offset, rng.uniform(100, 800, len(one.flat)))
    reply, own, _ = fit(one, start, Payload(other))
    np.testing.assert_allclose(own.posterior.mean, other.mean, atol=1e-4)
    np.testing.assert_allclose(reply.posterior.mean, other.mean, atol=0.02)
    np.testing.assert_allclose(reply.posterior.precision, other.precision, rtol=0.2)


def test_pfedbayes_takes_as_many_minibatches_as_it_is_told(tmp_path):
    """5 of them with 3 steps and 2 draws each, whatever is in an epoch; without a number all of the epochs'."""
    one, start = client_of(
        "pfedbayes",
        tmp_path,
        "client.minibatches=5",
        "client.personal_steps=3",
        "client.mc_samples=2",
    )
    fit(one, start)
    assert one.steps == 5 * 3 * 2
    one, start = client_of(
        "pfedbayes", tmp_path / "all", "client.minibatches=null", "client.epochs=2"
    )
    fit(one, start)
    size = len(one.partition.train)
    assert one.steps == 2 * -(-size // one.settings.client.batch_size) * 5


def test_pfedvem_tells_how_far_its_head_is_from_the_servers_before_it_trains(tmp_path):
    """rho^2 = mean of var_k + (m_k - mu)^2 over the head: its first deviation's square in round 1."""
    one, start = client_of("pfedvem", tmp_path, "client.sigma_init=0.5")
    reply, own, metrics = fit(one, start)
    assert metrics["head_variance"] == pytest.approx(0.25)
    assert set(one.codec.encode(reply)) == {"mean"}  # no variances
    head = one.flat.part("head")
    server = Payload(Posterior(start.posterior.mean + 0.7))
    expected = (
        own.posterior.variance[head] + np.square(own.posterior.mean - server.posterior.mean)[head]
    )
    assert fit(one, server, own)[2]["head_variance"] == pytest.approx(
        float(expected.mean()), rel=1e-4
    )


def test_pfedvem_has_a_gaussian_head_on_a_base_that_is_a_point(tmp_path):
    one, start = client_of("pfedvem", tmp_path)
    reply, own, _ = fit(one, start)
    head, base = (one.flat.part(part) for part in ("head", "base"))
    assert same(own.posterior.mean, reply.posterior.mean)
    assert own.posterior.variance[base].max() < 1e-30
    assert own.posterior.precision[head].min() > 0.1 and own.posterior.precision[head].max() < 1e4
    assert isinstance(one.flat.module.head, nn.Linear)  # it was away while the base was computed
    assert all(parameter.requires_grad for parameter in one.flat.module.parameters())
    other = Payload(Posterior(own.posterior.mean + 5, own.posterior.precision))
    words = ["client.learning_rate=1e-9"]
    _, still, _ = fit(*client_of("pfedvem", tmp_path / "still", *words), other)
    np.testing.assert_allclose(still.posterior.mean[base], start.posterior.mean[base], atol=1e-5)
    np.testing.assert_allclose(still.posterior.mean[head], other.posterior.mean[head], atol=1e-3)


def test_heads_drawn_together_teach_the_base_as_one_by_one(tmp_path):
    """The same random numbers, and the mean of the losses under each draw."""
    words = [
        "client.head_steps=0",
        "client.epochs=1",
        "client.learning_rate=0.05",
        "client.mc_samples=3",
    ]
    one, start = client_of("pfedvem", tmp_path, *words)
    torch.manual_seed(4)
    arrays = {"keys": ["mean"], "round": 1, "learning-rate": 0.05}
    together = one.train(start, one.task(arrays)).mean
    flat = one.flat
    head = one.flat.part("head")
    base = one.flat.part("base")
    torch.manual_seed(4)
    flat.load(start.posterior.mean)
    velocity = torch.zeros_like(flat.vector)
    for inputs, labels in one.task(arrays).batches():
        flat.zero_gradient()
        for _ in range(3):
            flat.vector[head] = torch.tensor(start.posterior.mean[head]) + torch.randn(
                len(flat.vector[head])
            )
            cross_entropy(flat.module(inputs), labels).div(3).backward()
        velocity = 0.9 * velocity + flat.gradient
        flat.vector[base] -= 0.05 * velocity[base]
    np.testing.assert_allclose(together[base], flat.mean()[base], atol=1e-4)
    assert np.abs(together[base] - start.posterior.mean[base]).max() > 0.05


def test_a_base_under_a_head_without_doubt_learns_by_plain_sgd(tmp_path):
    words = [
        "client.sigma_init=1e-5",
        "client.head_steps=0",
        "client.learning_rate=0.05",
        "client.mc_samples=3",
    ]
    one, start = client_of("pfedvem", tmp_path, *words)
    reply, _, _ = fit(one, start)
    arrays = {"keys": ["mean"], "round": 1, "learning-rate": 0.05}
    task = one.task(arrays)
    one.flat.load(start.posterior.mean)
    module = one.flat.module
    optimizer = torch.optim.SGD(module.base.parameters(), lr=0.05, momentum=0.9)
    for inputs, labels in task.batches():
        one.flat.zero_gradient()
        cross_entropy(module(inputs), labels).backward()
        optimizer.step()
    np.testing.assert_allclose(reply.posterior.mean, one.flat.mean(), atol=2e-3)
    assert np.abs(reply.posterior.mean - start.posterior.mean).max() > 0.05


@pytest.mark.parametrize("name", METHODS)
def test_networks_with_batch_norm_keep_its_statistics_with_the_personal_model(name, tmp_path):
    words = ["model.name=resnet", "model.options={channels: [4], blocks: 1}"]
    reply, own, _ = fit(*client_of(name, tmp_path, *words))
    assert own.buffers.shape == reply.buffers.shape and np.isfinite(own.buffers).all()
    if name != "local-bnn":
        assert same(own.buffers, reply.buffers)
