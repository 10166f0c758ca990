"""Personal models that are points, with parts of their own.

What they become, what travels, and what does not.
"""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedivon_app.clients.parts import alone, replaced
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.models import build
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.datasets.node_data import Partition
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.base import Reply, Round
from tests.clients.helpers import (
    BATCH_NORM,
    EACH,
    QUICK,
    SMALL,
    SOURCE,
    accuracy,
    client_of,
    instructions,
    remember,
    trained,
)
from tests.simulated import federate, initial_network


@pytest.mark.parametrize(
    ("name", "client"),
    [
        ("local", QUICK),
        ("fedper", QUICK),
        ("fedrep", QUICK | {"head_epochs": 20}),
        (
            "pfedme",
            QUICK
            | {
                "learning_rate": 0.1,
                "personal_learning_rate": 0.5,
                "proximal": 0.01,
                "inner_steps": 10,
            },
        ),
        ("perfedavg", QUICK | {"inner_learning_rate": 0.5, "variant": "first-order"}),
        ("perfedavg", QUICK | {"inner_learning_rate": 0.5, "variant": "hessian-free"}),
    ],
)
def test_clients_that_contradict_each_other_are_both_right(name, client, tmp_path):
    found = federate(name, 10, client, {}, tmp_path, SOURCE, clients=2, model="mlp", sizes=[8])
    assert min(accuracy(own, k, sizes=[8]) for k, own in enumerate(found.personal)) >= 0.95


# What is a client's own.


def test_parts_of_a_posterior_are_replaced_with_their_precision():
    ours = Posterior(np.full(4, 1.0), np.full(4, 10.0))
    theirs = Posterior(np.full(4, 2.0), np.full(4, 20.0))
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
    start = initial_network(SOURCE).mean()
    np.testing.assert_array_equal(found.server.mean, start)
    settings = settings_of("fedavg").model_validate(
        {
            "experiment": "test",
            "strategy": "fedavg",
            "client": QUICK | {"batch_size": 7},
            "model": {"name": "linear"},
        }
    )
    for k, (own, reply) in enumerate(zip(found.personal, found.replies, strict=True)):
        rows = np.arange(k * EACH, (k + 1) * EACH)
        partition = Partition(k, SOURCE, rows, rows)
        by_itself = method("fedavg").client(settings, partition, None, tmp_path / "fedavg")
        payload = Payload(Posterior(start))
        for number in (1, 2, 3):
            told = Instructions(round=number, learning_rate=0.5)
            payload = by_itself.work(payload, told).payload
        np.testing.assert_array_equal(own.posterior.mean, payload.posterior.mean)
        np.testing.assert_array_equal(reply.posterior.mean, start)


def test_the_server_of_local_clients_keeps_what_it_has():
    settings = settings_of("local").model_validate({"experiment": "test", "strategy": "local"})
    server = Payload(Posterior(np.array([1.0, 2.0])))
    replies = [Reply(0, 5, 0, Payload(Posterior(np.array([7.0, 8.0]))), {})]
    strategy = method("local").strategy(settings, Architecture())
    weights = strategy.weigh(replies, server.posterior)
    merged = strategy.merge(Round(1, replies, weights, previous=server, num_clients=1))
    assert merged.posterior.mean.tolist() == [1, 2]
    assert not strategy.has_global_model


def test_nothing_of_a_local_client_is_sent_and_all_of_it_lasts(tmp_path):
    """With batch norm: its statistics, too, go on from the client's own."""
    asked = client_of("local", tmp_path, *BATCH_NORM)
    start = asked.start
    first = trained(asked.client, start)
    own = first.own
    np.testing.assert_array_equal(first.sent.posterior.mean, start.posterior.mean)
    np.testing.assert_array_equal(first.sent.buffers, start.buffers)
    assert np.abs(own.buffers - start.buffers).max() > 0.01
    same = [
        "client.optimizer=sgd",
        "client.learning_rate=0.01",
        "client.momentum=0.5",
        "client.weight_decay=0",
        "client.schedule=constant",
        "client.final_learning_rate=null",
        "evaluation.personal=true",
    ]
    by_itself = client_of("fedavg", tmp_path / "fedavg", *BATCH_NORM, *same).client
    remember(by_itself, own)
    expected = trained(by_itself, own, number=2).own
    second = trained(asked.client, start, number=2).own
    np.testing.assert_array_equal(second.posterior.mean, expected.posterior.mean)
    np.testing.assert_array_equal(second.buffers, expected.buffers)


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
@pytest.mark.parametrize("head", ["head", "base.1"])
def test_a_head_is_used_and_never_travels(name, head, tmp_path):
    asked = client_of(name, tmp_path, *SMALL, f"client.head={head}")
    server = asked.start.posterior.mean
    part = asked.client.flat.part("head", head)
    rest = asked.client.flat.part("base", head)
    rng = np.random.default_rng(0)
    replies = []
    for shift_of in ("nothing", "head", "base"):
        mean = server.copy()
        if shift_of != "nothing":
            place = part if shift_of == "head" else rest
            mean[place] += rng.standard_normal(len(mean[place])).astype(np.float32)
        remember(asked.client, Payload(Posterior(mean)))
        replies.append(trained(asked.client, asked.start, number=2).sent.posterior.mean)
    for reply in replies:
        np.testing.assert_array_equal(reply[part], server[part])
    plain, other_head, other_base = replies
    # the base was trained for another head
    assert np.abs(plain[rest] - other_head[rest]).max() > 1e-3
    np.testing.assert_array_equal(plain, other_base)  # the base is the server's, whatever was kept


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_the_server_averages_the_bases(name, tmp_path):
    found = federate(name, 3, QUICK, {}, tmp_path, SOURCE, clients=2, model="mlp", sizes=[8])
    flat = initial_network(SOURCE, "mlp", sizes=[8])
    head = flat.part("head")
    base = flat.part("base")
    np.testing.assert_array_equal(found.server.mean[head], flat.mean()[head])
    bases = [own.posterior.mean[base] for own in found.personal]
    np.testing.assert_allclose(found.server.mean[base], np.mean(bases, 0), rtol=1e-6, atol=1e-7)
    heads = [own.posterior.mean[head] for own in found.personal]
    assert np.abs(heads[0] - heads[1]).max() > 0.5
    settings = settings_of(name).model_validate({"experiment": "test", "strategy": name})
    assert not method(name).strategy(settings, Architecture()).has_global_model


def test_statistics_of_batch_norm_go_with_the_base(tmp_path):
    asked = client_of("fedper", tmp_path, *BATCH_NORM)
    first = trained(asked.client, asked.start)
    own = first.own
    np.testing.assert_array_equal(first.sent.buffers, own.buffers)
    assert np.abs(own.buffers - asked.start.buffers).max() > 0.01
    again = []
    for kept in (own, replace(own, buffers=own.buffers + 1)):
        remember(asked.client, kept)
        again.append(trained(asked.client, asked.start, number=2).sent.buffers)
    np.testing.assert_array_equal(again[0], again[1])  # a round begins at the server's


def test_fedrep_trains_the_head_and_then_the_base(tmp_path):
    """Plain torch, two optimizers; weight decay would move what is frozen if they knew of it."""
    words = [
        "client.head_epochs=3",
        "client.epochs=2",
        "client.weight_decay=0.1",
        "client.learning_rate=0.1",
    ]
    asked = client_of("fedrep", tmp_path, *SMALL, *words)
    server = asked.start.posterior.mean
    flat = asked.client.flat
    flat.load(server)
    module = deepcopy(flat.module)
    task = asked.client.task(instructions(asked.client))
    after = []
    for part, epochs in ((module.head, 3), (module.base, 2)):
        optimizer = torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.5, weight_decay=0.1)
        for inputs, labels in replace(task, epochs=epochs).batches():
            module.zero_grad()
            torch.nn.functional.cross_entropy(module(inputs), labels).backward()
            optimizer.step()
        after.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy())
    own = trained(asked.client, asked.start).own
    np.testing.assert_allclose(own.posterior.mean, after[1], atol=1e-6)
    head = flat.part("head")
    base = flat.part("base")
    np.testing.assert_array_equal(after[0][base], server[base])
    np.testing.assert_array_equal(after[1][head], after[0][head])
    assert all(weights.requires_grad for weights in flat.module.parameters())


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
