"""Personal models that are points: what they become, what travels, and what does not."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.func import functional_call

from clients import personal
from clients.data import Partition, partition_of
from clients.parts import alone, replaced
from clients.perfedavg import PerFedAvgClient
from clients.pfedme import PFedMeClient
from datasets.base import Source
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.models import build
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import compose
from fedivon_app.methods import method, settings_of
from fedivon_app.server_app import prepare
from strategies.wire import Reply
from tests.federation import federate, initial_weights

EACH = 40
BATCH_NORM = ["model.name=resnet", "model.options={channels: [4], blocks: 1}"]
SMALL = ["model.options={sizes: [12, 8], activation: tanh}"]


def conflict() -> Source:
    """Two clients with the same inputs and opposite labels: whatever one model says is right for half of them."""
    x = np.random.default_rng(0).standard_normal((EACH, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    return Source("conflict", np.r_[x, x], np.r_[y, 1 - y], np.r_[x, x], np.r_[y, 1 - y], 2)


SOURCE = conflict()


def client_of(name, folder, *words):
    """Of partition 3 of the digits, and what it is sent in round 1."""
    settings = compose(settings_of, "demo", name, words)
    one = method(name).client(settings, partition_of(settings, {"partition-id": 3, "num-partitions": 20}), None, folder)
    flat = prepare(settings)[0]
    return one, method(name).strategy(settings).begin(flat.mean(), flat.buffers)


def config_of(one, number=1):
    keys = ["mean", *(["buffers"] if one.flat.buffers is not None else [])]
    rate = one.settings.client.learning_rate
    return {"keys": keys, "round": number, "learning-rate": rate, "last-merged": number - 1}


def fit(one, start, number=1):
    """The client's reply and its PM after a round."""
    config = config_of(one, number)
    arrays = one.codec.encode(start)
    out = one.fit(list(arrays.values()), config)[0]
    own = personal.recall(one.memory(config).recall(number))
    return one.codec.decode(dict(zip(arrays, out, strict=True)), start), own


def remember(one, own, number=1):
    """Has the client keep this PM as that of the round."""
    memory = {}
    personal.keep(memory, own)
    one.memory(config_of(one)).keep(number, memory, 0)


def accuracy(own: Payload, k: int, **options) -> float:
    flat = Flat(build("mlp", SOURCE.shape, SOURCE.num_classes, **options))
    flat.load(own.posterior.mean)
    rows = slice(k * EACH, (k + 1) * EACH)
    found = flat.module(torch.from_numpy(SOURCE.x_train[rows])).argmax(1).numpy()
    return float((found == SOURCE.y_train[rows]).mean())


QUICK = {"optimizer": "sgd", "learning_rate": 0.5, "epochs": 20, "batch_size": EACH}


@pytest.mark.parametrize(
    ("name", "client"),
    [
        ("local", QUICK),
        ("fedper", QUICK),
        ("fedrep", QUICK | {"head_epochs": 20}),
        ("pfedme", QUICK | {"learning_rate": 0.1, "personal_learning_rate": 0.5, "proximal": 0.01, "inner_steps": 10}),
        ("perfedavg", QUICK | {"inner_learning_rate": 0.5, "variant": "first-order"}),
        ("perfedavg", QUICK | {"inner_learning_rate": 0.5, "variant": "hessian-free"}),
    ],
)
def test_clients_that_contradict_each_other_are_both_right(name, client, tmp_path):
    found = federate(name, 10, client, {}, tmp_path, SOURCE, 2, "mlp", sizes=[8])
    assert min(accuracy(own, k, sizes=[8]) for k, own in enumerate(found.personal)) >= 0.95


# What is a client's own.


def test_parts_of_a_posterior_are_replaced_with_their_precision():
    ours, theirs = (Posterior(np.full(4, v), np.full(4, 10 * v)) for v in (1.0, 2.0))
    for part in (slice(1, 3), np.array([False, True, True, False])):
        mixed = replaced(ours, part, theirs)
        assert mixed.mean.tolist() == [1, 2, 2, 1] and mixed.precision.tolist() == [10, 20, 20, 10]
    assert ours.mean.tolist() == [1, 1, 1, 1]
    assert replaced(Posterior(np.ones(2)), slice(0, 1), theirs).precision is None


def test_a_part_learns_alone_and_the_rest_learns_again_afterwards():
    flat = Flat(build("mlp", (3,), 2, sizes=[4]))
    with pytest.raises(RuntimeError, match="stop"), alone(flat, flat.part("head")) as weights:
        assert [weight.shape for weight in weights] == [(2, 4), (2,)]
        flat.module(torch.ones(1, 3)).sum().backward()
        assert not flat.gradient[flat.part("base")].any() and flat.gradient[flat.part("head")].any()
        raise RuntimeError("stop")
    assert all(weight.requires_grad for weight in flat.module.parameters())


def test_local_clients_are_fedavgs_clients_alone(tmp_path):
    """Bit for bit: as if each were its own server."""
    found = federate("local", 3, QUICK | {"batch_size": 7}, {}, tmp_path / "local", SOURCE, 2)
    start = initial_weights(SOURCE)
    np.testing.assert_array_equal(found.server.mean, start)
    settings = settings_of("fedavg").model_validate(
        {"experiment": "test", "strategy": "fedavg", "client": QUICK | {"batch_size": 7}, "model": {"name": "linear"}}
    )
    for k, (own, reply) in enumerate(zip(found.personal, found.replies, strict=True)):
        rows, mean = np.arange(k * EACH, (k + 1) * EACH), start
        alone = method("fedavg").client(settings, Partition(k, SOURCE, rows, rows), None, tmp_path / "fedavg")
        for number in (1, 2, 3):
            (mean,) = alone.fit([mean], {"keys": ["mean"], "round": number, "learning-rate": 0.5})[0]
        np.testing.assert_array_equal(own.posterior.mean, mean)
        np.testing.assert_array_equal(reply.posterior.mean, start)


def test_the_server_of_local_clients_keeps_what_it_has():
    settings = settings_of("local").model_validate({"experiment": "test", "strategy": "local"})
    server = Posterior(np.array([1.0, 2.0]))
    replies = [Reply(0, 5, 0, Payload(Posterior(np.array([7.0, 8.0]))), {})]
    strategy = method("local").strategy(settings)
    assert strategy.merge(replies, strategy.weights(replies, server), server).mean.tolist() == [1, 2]
    assert not strategy.has_global_model


def test_nothing_of_a_local_client_is_sent_and_all_of_it_lasts(tmp_path):
    """With batch norm: its statistics, too, go on from the client's own."""
    one, start = client_of("local", tmp_path, *BATCH_NORM)
    reply, own = fit(one, start)
    np.testing.assert_array_equal(reply.posterior.mean, start.posterior.mean)
    np.testing.assert_array_equal(reply.buffers, start.buffers)
    assert np.abs(own.buffers - start.buffers).max() > 0.01
    same = ["client.optimizer=sgd", "client.learning_rate=0.01", "client.momentum=0.5", "client.weight_decay=0"]
    same += ["client.schedule=constant", "client.final_learning_rate=null", "evaluation.personal=true"]
    alone = client_of("fedavg", tmp_path / "fedavg", *BATCH_NORM, *same)[0]
    remember(alone, own)
    _, expected = fit(alone, own, 2)
    _, second = fit(one, start, 2)
    np.testing.assert_array_equal(second.posterior.mean, expected.posterior.mean)
    np.testing.assert_array_equal(second.buffers, expected.buffers)


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
@pytest.mark.parametrize("head", ["head", "base.1"])
def test_a_head_is_used_and_never_travels(name, head, tmp_path):
    one, start = client_of(name, tmp_path, *SMALL, f"client.head={head}")
    part = one.flat.part("head", head)
    rest = one.flat.part("base", head)
    rng = np.random.default_rng(0)
    replies = []
    for shift_of in ("nothing", "head", "base"):
        mean = start.posterior.mean.copy()
        if shift_of != "nothing":
            place = part if shift_of == "head" else rest
            mean[place] += rng.standard_normal(len(mean[place])).astype(np.float32)
        remember(one, Payload(Posterior(mean)))
        replies.append(fit(one, start, 2)[0].posterior.mean)
    for reply in replies:
        np.testing.assert_array_equal(reply[part], start.posterior.mean[part])
    plain, other_head, other_base = replies
    assert np.abs(plain[rest] - other_head[rest]).max() > 1e-3  # the base was trained for another head
    np.testing.assert_array_equal(plain, other_base)  # the base is the server's, whatever was kept


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_the_server_averages_the_bases(name, tmp_path):
    found = federate(name, 3, QUICK, {}, tmp_path, SOURCE, 2, "mlp", sizes=[8])
    flat = Flat(build("mlp", SOURCE.shape, 2, sizes=[8]))
    head, base = flat.part("head"), flat.part("base")
    np.testing.assert_array_equal(found.server.mean[head], initial_weights(SOURCE, "mlp", sizes=[8])[head])
    bases = [own.posterior.mean[base] for own in found.personal]
    np.testing.assert_allclose(found.server.mean[base], np.mean(bases, 0), rtol=1e-6, atol=1e-7)
    heads = [own.posterior.mean[head] for own in found.personal]
    assert np.abs(heads[0] - heads[1]).max() > 0.5
    assert not method(name).strategy.has_global_model


def test_statistics_of_batch_norm_go_with_the_base(tmp_path):
    one, start = client_of("fedper", tmp_path, *BATCH_NORM)
    reply, own = fit(one, start)
    np.testing.assert_array_equal(reply.buffers, own.buffers)
    assert np.abs(own.buffers - start.buffers).max() > 0.01
    again = []
    for kept in (own, replace(own, buffers=own.buffers + 1)):
        remember(one, kept)
        again.append(fit(one, start, 2)[0].buffers)
    np.testing.assert_array_equal(*again)  # a round begins at the server's


def test_fedrep_trains_the_head_and_then_the_base(tmp_path):
    """Plain torch, two optimizers; weight decay would move what is frozen if they knew of it."""
    words = ["client.head_epochs=3", "client.epochs=2", "client.weight_decay=0.1", "client.learning_rate=0.1"]
    one, start = client_of("fedrep", tmp_path, *SMALL, *words)
    one.flat.load(start.posterior.mean)
    module, task = deepcopy(one.flat.module), one.task(config_of(one))
    after = []
    for part, epochs in ((module.head, 3), (module.base, 2)):
        optimizer = torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.5, weight_decay=0.1)
        for inputs, labels in replace(task, epochs=epochs).batches():
            module.zero_grad()
            torch.nn.functional.cross_entropy(module(inputs), labels).backward()
            optimizer.step()
        after.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy())
    _, own = fit(one, start)
    np.testing.assert_allclose(own.posterior.mean, after[1], atol=1e-6)
    head, base = one.flat.part("head"), one.flat.part("base")
    np.testing.assert_array_equal(after[0][base], start.posterior.mean[base])
    np.testing.assert_array_equal(after[1][head], after[0][head])
    assert all(weights.requires_grad for weights in one.flat.module.parameters())


def test_a_model_that_is_all_head_is_trained_locally(tmp_path):
    found = federate("fedrep", 2, QUICK | {"head_epochs": 5}, {}, tmp_path / "fedrep", SOURCE, 2)
    local = federate("local", 2, QUICK | {"epochs": 5}, {}, tmp_path / "local", SOURCE, 2)
    for own, other in zip(found.personal, local.personal, strict=True):
        np.testing.assert_allclose(own.posterior.mean, other.posterior.mean, atol=1e-6)


@pytest.mark.parametrize("name", ["local", "fedper", "fedrep", "perfedavg"])
def test_a_pull_to_the_server_is_refused_where_training_does_not_begin_there(name):
    values = {"experiment": "test", "strategy": name, "client": {"proximal": 0.1}}
    with pytest.raises(ValidationError, match="proximal"):
        settings_of(name).model_validate(values)


# Quadratic losses a/2 |theta - c|^2, one for each client, on which everything is known.

CURVATURE = (0.5, 1.5)


def centre(k: int) -> np.ndarray:
    return np.random.default_rng([7, k]).standard_normal(10).astype(np.float32)


class Quadratic:
    def loss(self, inputs, labels):
        theta = torch.cat([weights.reshape(-1) for weights in self.flat.module.parameters()])
        k = self.partition.number
        return CURVATURE[k] / 2 * (theta - torch.from_numpy(centre(k))).square().sum()


class QuadraticPFedMe(Quadratic, PFedMeClient):
    pass


class QuadraticPerFedAvg(Quadratic, PerFedAvgClient):
    pass


def weighted(weights: list[float]) -> np.ndarray:
    return np.average([centre(k) for k in range(2)], axis=0, weights=weights)


def test_pfedme_moves_theta_on_every_minibatch_and_w_after_it(tmp_path):
    rate, personal_rate, pull = 0.02, 0.05, 4.0
    client = {"learning_rate": rate, "personal_learning_rate": personal_rate, "proximal": pull, "inner_steps": 3}
    client |= {"epochs": 2, "batch_size": EACH // 2}
    found = federate("pfedme", 1, client, {}, tmp_path, SOURCE, 2, kind=QuadraticPFedMe)
    for k, a in enumerate(CURVATURE):
        theta = w = initial_weights(SOURCE).astype(np.float64)
        for _ in range(4):
            for _ in range(3):
                theta = theta - personal_rate * (a * (theta - centre(k)) + pull * (theta - w))
            w = w - rate * pull * (w - theta)
        np.testing.assert_allclose(found.personal[k].posterior.mean, theta, atol=1e-6)
        np.testing.assert_allclose(found.replies[k].posterior.mean, w, atol=1e-6)


@pytest.mark.parametrize(("pull", "beta"), [(0.1, 1.0), (2.0, 1.0), (2.0, 2.0)])
def test_pfedme_finds_the_minimum_of_the_moreau_envelopes(pull, beta, tmp_path):
    """w = sum b_k c_k / sum b_k with b_k = a_k / (a_k + lambda), theta_k = (a_k c_k + lambda w) / (a_k + lambda)."""
    client = {"learning_rate": 0.9 / pull, "personal_learning_rate": 0.9 / (max(CURVATURE) + pull), "proximal": pull}
    client |= {"inner_steps": 25, "batch_size": EACH}
    found = federate("pfedme", 30, client, {"beta": beta}, tmp_path, SOURCE, 2, kind=QuadraticPFedMe)
    w = weighted([a / (a + pull) for a in CURVATURE])
    np.testing.assert_allclose(found.server.mean, w, atol=1e-3)
    for k, a in enumerate(CURVATURE):
        theta = (a * centre(k) + pull * w) / (a + pull)
        np.testing.assert_allclose(found.personal[k].posterior.mean, theta, atol=1e-3)


@pytest.mark.parametrize("pull", [1e-4, 1e4])
def test_pfedmes_personal_points_are_the_clients_own_or_the_servers_at_the_limits(pull, tmp_path):
    client = {"learning_rate": 0.5 / pull, "personal_learning_rate": 0.5 / (1 + pull), "proximal": pull}
    client |= {"inner_steps": 60, "batch_size": EACH}
    found = federate("pfedme", 1, client, {}, tmp_path, SOURCE, 2, kind=QuadraticPFedMe)
    for k in range(2):
        limit = centre(k) if pull < 1 else initial_weights(SOURCE)
        np.testing.assert_allclose(found.personal[k].posterior.mean, limit, atol=2e-3)


@pytest.mark.parametrize(("beta", "merged"), [(0.5, [1.0, 10.5]), (1.0, [2.0, 11.0]), (2.0, [4.0, 12.0])])
def test_pfedmes_server_goes_towards_the_average_or_beyond(beta, merged):
    settings = settings_of("pfedme").model_validate(
        {"experiment": "test", "strategy": "pfedme", "merge": {"beta": beta}}
    )
    replies = [
        Reply(k, 1, 0, Payload(Posterior(np.array(mean))), {}) for k, mean in enumerate([[1.0, 8.0], [3.0, 14.0]])
    ]
    found = method("pfedme").strategy(settings).merge(replies, np.array([0.5, 0.5]), Posterior(np.array([0.0, 10.0])))
    assert found.mean.tolist() == merged


@pytest.mark.parametrize(("variant", "power"), [("first-order", 1), ("hessian-free", 2)])
def test_perfedavg_finds_the_best_point_to_adapt_from(variant, power, tmp_path):
    """A step of one's own leaves a/2 (1 - alpha a)^2 |w - c|^2: w is the mean of the c_k with weights a_k (1 - alpha
    a_k)^2; to first order, which forgets that the step depends on w, with weights a_k (1 - alpha a_k)."""
    alpha, beta = 0.4, 1.0
    client = {"learning_rate": beta, "inner_learning_rate": alpha, "variant": variant, "batch_size": EACH}
    found = federate("perfedavg", 50, client, {"weighting": "equal"}, tmp_path, SOURCE, 2, kind=QuadraticPerFedAvg)
    slope = [a * (1 - alpha * a) ** power for a in CURVATURE]
    w = weighted(slope)
    np.testing.assert_allclose(found.server.mean, w, atol=1e-4)
    for k, a in enumerate(CURVATURE):
        sent = w - beta * slope[k] * (w - centre(k))
        np.testing.assert_allclose(found.replies[k].posterior.mean, sent, atol=1e-4)
        adapted = sent - alpha * a * (sent - centre(k))
        np.testing.assert_allclose(found.personal[k].posterior.mean, adapted, atol=1e-4)


@pytest.mark.parametrize("difference", [1e-1, 1e-2, 1e-3])
def test_differences_of_gradients_are_the_hessian_times_the_gradient(difference, tmp_path):
    """On a network, against autograd in float64; the first-order variant lacks this term and nothing else."""
    alpha = 0.5
    words = [*SMALL, f"client.inner_learning_rate={alpha}", f"client.difference={difference}"]
    one, start = client_of("perfedavg", tmp_path, *words, "client.variant=hessian-free")
    first, _ = client_of("perfedavg", tmp_path, *words, "client.variant=first-order")
    task = one.task(config_of(one))
    batches = [(task.inputs[rows], task.labels[rows]) for rows in torch.arange(60).split(20)]
    weights = one.flat.checked(start.posterior.mean)

    def loss(theta, batch):
        logits = functional_call(one.flat.module, one.flat.named_parameters(theta), (batch[0].double(),))
        return torch.nn.functional.cross_entropy(logits, batch[1])

    def slope(theta, batch):
        return torch.autograd.grad(loss(theta, batch), theta, create_graph=True)[0]

    here = weights.double().requires_grad_()
    ahead = (here - alpha * slope(here, batches[0])).detach().requires_grad_()
    gradient = slope(ahead, batches[1]).detach()
    (curved,) = torch.autograd.grad(slope(here, batches[2]) @ gradient, here)
    to_first_order, to_second = (c.meta_gradient(weights, *batches).double() for c in (first, one))
    assert (to_first_order - gradient).norm() < 1e-4 * gradient.norm()
    assert (to_second - (gradient - alpha * curved)).norm() < 1e-2 * (alpha * curved).norm()
    assert (alpha * curved).norm() > 0.1 * gradient.norm()  # so the term is one that counts


def test_a_step_of_perfedavg_is_down_the_loss_after_adaptation(tmp_path):
    """With all examples in every minibatch: the gradient of f(w - alpha grad f(w)), by autograd through the step."""
    words = ["client.epochs=1", "client.batch_size=1000", "client.learning_rate=0.1", "client.inner_learning_rate=0.5"]
    one, start = client_of("perfedavg", tmp_path, *SMALL, *words, "client.adapt_steps=2")
    reply, own = fit(one, start)
    task = one.task(config_of(one))

    def loss(theta):
        logits = functional_call(one.flat.module, one.flat.named_parameters(theta), (task.inputs.double(),))
        return torch.nn.functional.cross_entropy(logits, task.labels)

    def adapted(theta):
        return theta - 0.5 * torch.autograd.grad(loss(theta), theta, create_graph=True)[0]

    here = torch.from_numpy(start.posterior.mean).double().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(adapted(here)), here)
    point = (here - 0.1 * gradient).detach().requires_grad_()
    np.testing.assert_allclose(reply.posterior.mean, point.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(own.posterior.mean, adapted(adapted(point)).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(("variant", "gradients"), [("first-order", 2), ("hessian-free", 4)])
def test_each_step_of_perfedavg_has_minibatches_of_its_own(variant, gradients, tmp_path, monkeypatch):
    one, start = client_of("perfedavg", tmp_path, *SMALL, "client.batch_size=4", f"client.variant={variant}")
    seen, plain = [], one.gradient_at
    monkeypatch.setattr(one, "gradient_at", lambda weights, batch: (seen.append(batch[0]), plain(weights, batch))[1])
    fit(one, start)
    steps = [seen[i : i + gradients] for i in range(0, len(seen) - 1, gradients)]
    expected = list(one.task(config_of(one)).batches())
    assert len(steps) == len(expected) and len(seen) == gradients * len(steps) + 1  # and one to adapt
    for (inner, outer, *third), (inputs, _) in zip(steps, expected, strict=True):
        assert torch.equal(outer, inputs) and not torch.equal(inner, outer)
        assert all(torch.equal(third[0], side) and not torch.equal(side, inner) for side in third)


def test_adaptation_is_the_clients_own_affair(tmp_path):
    """What is sent does not depend on it, batch norm's statistics included."""
    sent, kept = [], []
    for steps in (0, 3):
        one, start = client_of("perfedavg", tmp_path / str(steps), *BATCH_NORM, f"client.adapt_steps={steps}")
        reply, own = fit(one, start)
        sent.append(reply)
        kept.append(own)
    np.testing.assert_array_equal(sent[0].posterior.mean, sent[1].posterior.mean)
    np.testing.assert_array_equal(sent[0].buffers, sent[1].buffers)
    np.testing.assert_array_equal(kept[0].posterior.mean, sent[0].posterior.mean)
    assert np.abs(kept[1].posterior.mean - sent[1].posterior.mean).max() > 1e-4
    assert np.abs(kept[1].buffers - sent[1].buffers).max() > 1e-4
