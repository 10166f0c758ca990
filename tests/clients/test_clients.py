"""Clients on real data: through the typed door, and called as Flower calls them."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedivon_app.client_app import app
from fedivon_app.clients.task import Carries, ClientReply
from fedivon_app.core.client_scores import to_metrics
from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import DataError
from fedivon_app.core.posterior import Posterior
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.methods import METHODS, method, settings_of
from tests.clients.helpers import Asked, arrays_of, first_payload, instructions, new_client

# bayes-admm-full takes all examples at once, and no chances; those that have a PM whatever the
# settings say are in tests/clients/test_personal.py
MINIBATCHES = [
    name
    for name, found in METHODS.items()
    if name != "bayes-admm-full" and Carries.MODEL not in found.client.carries
]


def make(strategy: str, **overrides) -> Asked:
    words = [f"{key.replace('__', '.')}={value}" for key, value in overrides.items()]
    if strategy == "bayes-admm-full":
        words.append("model.name=linear")
    settings = compose(settings_of, "demo", strategy, words)
    return Asked(new_client(settings), first_payload(settings))


def work(asked: Asked, **told) -> ClientReply:
    return asked.client.work(asked.start, instructions(asked.client, **told))


def with_precision(asked: Asked, precision: np.ndarray) -> Asked:
    """What the client is asked, but with another precision of the server's."""
    return replace(asked, start=Payload(Posterior(asked.start.posterior.mean, precision)))


@pytest.mark.parametrize("strategy", MINIBATCHES)
def test_training_lowers_the_clients_own_loss(strategy):
    first = work(make(strategy, client__epochs=20))
    once_more = replace(make(strategy, client__epochs=1), start=first.payload)
    again = work(once_more)
    assert again.metrics["loss"] < 0.7 * first.metrics["loss"]
    assert first.num_examples == len(once_more.client.partition.train)


@pytest.mark.parametrize(("strategy", "towards_zero"), [("fedlap", True), ("fed-admm", False)])
def test_where_the_server_is_made_of_duals_its_clients_are_first_tied_to_the_prior(
    strategy, towards_zero
):
    tied = make(strategy, merge__rho=1e5, client__epochs=20, client__learning_rate=0.003)
    begins = np.linalg.norm(tied.start.posterior.mean)
    ends = np.linalg.norm(work(tied).payload.posterior.mean)
    assert (ends < 0.5 * begins) == towards_zero


@pytest.mark.parametrize("strategy", METHODS)
def test_flower_calls_fit_and_evaluate_with_arrays_and_a_dictionary(strategy):
    """They are the typed door, with names of arrays and of instructions: nothing is added."""
    asked = make(strategy)
    told = instructions(asked.client, total_examples=100)
    arrays = asked.client.codec.encode(asked.start)
    config = {"keys": list(arrays), **told.to_config(), "settings": "which others read"}
    result, num_examples, metrics = asked.client.fit(list(arrays.values()), config)
    expected = make(strategy).client.work(asked.start, told)
    assert [a.shape for a in result] == [p.shape for p in arrays.values()]
    for one, other in zip(result, arrays_of(expected.payload), strict=True):
        np.testing.assert_array_equal(one, other)
    assert num_examples == expected.num_examples
    assert metrics["seconds"] > 0
    assert metrics | {"seconds": 0} == expected.metrics | {"seconds": 0}
    loss, num_examples, metrics = asked.client.evaluate(list(arrays.values()), config)
    tallies = asked.client.score(asked.start, told)
    assert metrics == to_metrics(tallies)
    assert loss == tallies["gm"]["mean"].nll
    assert num_examples == len(asked.client.partition.test)


@pytest.mark.parametrize("strategy", MINIBATCHES)
def test_one_seed_one_result_and_another_round_another(strategy):
    def sent(server_round: int) -> list[np.ndarray]:
        asked = make(strategy)
        torch.rand(server_round)  # the state of the global generator does not matter
        return arrays_of(work(asked, number=server_round, last_merged=0).payload)

    one = sent(1)
    for a, b in zip(one, sent(1), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one[0], sent(2)[0])


def test_methods_see_the_same_examples_in_the_same_order():
    clients = [make(strategy).client for strategy in MINIBATCHES]
    batches = [
        [labels for _, labels in client.task(instructions(client)).batches()] for client in clients
    ]
    for first, *others in zip(*batches, strict=True):
        assert all(torch.equal(first, other) for other in others)


def test_batches_show_every_example_once_an_epoch():
    client = make("fedavg", client__epochs=3, client__batch_size=7).client
    task = client.task(instructions(client))
    shown = torch.cat([labels for _, labels in task.batches()])
    assert torch.equal(shown.bincount(minlength=10), 3 * task.labels.bincount(minlength=10))
    assert task.steps == len(list(task.batches()))


def test_losses_are_noted_as_they_are_computed():
    client = make("fedavg").client
    task = client.task(instructions(client))
    assert (task.losses.count, task.losses.mean) == (0, 0.0)
    logits = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    labels = torch.tensor([0, 1])
    expected = [torch.nn.functional.cross_entropy(logits, each) for each in (labels, 1 - labels)]
    assert task.loss(logits, labels) == expected[0]
    replace(task, epochs=5).loss(logits, 1 - labels)  # of the same round
    assert task.losses.count == 2
    assert task.losses.mean == pytest.approx(float(sum(expected)) / 2)


def test_fedavg_client_is_plain_adam():
    asked = make("fedavg")
    client = asked.client
    task = client.task(instructions(client))
    result = work(asked).payload.posterior.mean
    client.flat.load(asked.start.posterior.mean)
    rate = client.settings.client.learning_rate
    optimizer = torch.optim.Adam(client.flat.module.parameters(), lr=rate, weight_decay=2e-4)
    for inputs, labels in task.batches():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(client.flat.module(inputs), labels).backward()
        optimizer.step()
    np.testing.assert_allclose(
        result,
        torch.nn.utils.parameters_to_vector(client.flat.module.parameters()).detach(),
        atol=1e-6,
    )


def test_fedivon_client_starts_from_the_servers_precision():
    asked = make("fedivon")
    sharp = asked.start.posterior.precision * 100
    learned = work(with_precision(asked, sharp)).payload.posterior
    np.testing.assert_allclose(learned.precision, sharp, rtol=0.2)


def test_an_ivon_client_that_starts_at_the_mean_takes_its_own_hessian():
    asked = make("fedivon", client__start="mean")
    server = asked.start.posterior
    learned = work(with_precision(asked, server.precision * 1e6)).payload.posterior
    np.testing.assert_allclose(learned.precision, server.precision, rtol=0.2)
    assert np.abs(learned.mean - server.mean).max() > 1e-3


def learned_slowly(asked: Asked, precision: np.ndarray) -> Posterior:
    """What a client learns that is sent this precision, at a small rate."""
    return work(with_precision(asked, precision), learning_rate=1e-3).payload.posterior


def test_a_variational_client_starts_from_the_servers_deviations_or_from_its_own():
    """Adam moves rho by at most 0.001 a step here: sigma stays near where it began."""
    asked = make("flipout")
    precision = asked.start.posterior.precision
    learned = learned_slowly(asked, precision * 4)
    np.testing.assert_allclose(learned.precision, precision * 4, rtol=0.1)
    learned = learned_slowly(make("flipout", client__start="mean"), precision * 4)
    np.testing.assert_allclose(learned.precision, precision, rtol=0.1)


def test_deviations_that_a_merge_made_too_small_are_raised():
    asked = make("flipout", client__smallest_sigma=0.01, client__epochs=1)
    learned = learned_slowly(asked, np.full_like(asked.start.posterior.mean, 1e20))
    np.testing.assert_allclose(learned.precision, 1e4, rtol=0.1)


def test_the_prior_is_fixed_or_the_servers_posterior():
    """With a rate that lets it move: a certain server holds the means, a wide prior does not."""
    moved = {}
    for prior in ("fixed", "global"):
        asked = make("flipout", client__prior=prior, client__epochs=5)
        mean = asked.start.posterior.mean
        sharp = with_precision(asked, np.full_like(mean, 1e8))
        after = work(sharp, learning_rate=1e-2).payload.posterior.mean
        moved[prior] = np.abs(after - mean).mean()
    assert moved["global"] < 0.5 * moved["fixed"]


def test_the_fixed_prior_is_a_gaussian_of_the_given_variance():
    asked = make("flipout", client__prior_variance=4)
    assert asked.client.prior(asked.start.posterior) == (0.0, 0.25)


def test_a_dropout_client_trains_the_same_weights_with_noise():
    noisy = make("mc-dropout")
    plain = make("fedavg")
    np.testing.assert_array_equal(noisy.start.posterior.mean, plain.start.posterior.mean)
    told = instructions(noisy.client)
    learned = [asked.client.work(asked.start, told).payload.posterior for asked in (noisy, plain)]
    assert not np.array_equal(learned[0].mean, learned[1].mean)


@pytest.mark.parametrize("strategy", METHODS)
def test_evaluation_is_of_the_received_model_on_the_clients_own_labels(strategy):
    asked = make(strategy)
    client = asked.client
    before = [array.copy() for array in arrays_of(asked.start)]
    tallies = client.score(asked.start, instructions(client))
    source = client.partition.source
    held = set(source.y_train[client.partition.train].tolist())
    assert tallies["gm"]["mean"].count == sum(label in held for label in source.y_test.tolist())
    assert tallies["gm"]["mean"].accuracy < 0.6
    for one, other in zip(arrays_of(asked.start), before, strict=True):
        np.testing.assert_array_equal(one, other)


INDEPENDENT = ["fedavg", "fedivon", "fedivon-personal", "flipout", "mc-dropout", "fedlaplace"]


def carried(name: str, *words: str) -> Carries:
    return method(name).client.carried(compose(settings_of, "demo", name, words))


def test_which_methods_clients_go_on_from_what_they_kept():
    found = [name for name in METHODS if Carries.TRAINING not in carried(name)]
    assert sorted(found) == sorted(INDEPENDENT)
    assert Carries.TRAINING in carried("fedavg", "client.optimizer_state=kept")
    assert Carries.TRAINING in carried("fedivon-personal", "client.beta=0")


@pytest.mark.parametrize("name", METHODS)
def test_a_client_carries_a_model_if_its_method_or_the_settings_say_so(name):
    always = Carries.MODEL in method(name).client.carries
    assert (Carries.MODEL in carried(name, "evaluation.personal=false")) == always
    assert Carries.MODEL in carried(name, "evaluation.personal=true")


@pytest.mark.parametrize("strategy", INDEPENDENT)
def test_what_such_a_client_did_in_earlier_rounds_does_not_matter(strategy, tmp_path):
    def last_round(*earlier: int) -> list[np.ndarray]:
        place = {"client_state": str(tmp_path / f"{len(earlier)}"), "total_examples": 1000}
        for server_round in (*earlier, 3):
            reply = work(make(strategy, evaluation__personal=True), number=server_round, **place)
        return arrays_of(reply.payload)

    for one, other in zip(last_round(1, 2), last_round(), strict=True):
        np.testing.assert_array_equal(one, other)


def context(**node_config) -> Context:
    return Context(run_id=1, node_id=7, node_config=node_config, state=RecordDict(), run_config={})


def query(settings, **node_config) -> dict:
    config = ConfigRecord({"round": 0, "settings": settings.model_dump_json()})
    message = Message(RecordDict({"config": config}), 7, "query")
    message.metadata._message_id = "message"
    return dict(app(message, context(**node_config)).content["properties"])


def test_roll_call_tells_the_partition_and_its_sizes():
    settings = compose(settings_of, "demo")
    split = division(settings.data, 20, settings.seed).split
    answer = query(settings, **{"partition-id": 4, "num-partitions": 20})
    assert answer["partition-id"] == 4
    assert (answer["num-train"], answer["num-test"]) == (len(split.train[4]), len(split.test[4]))
    assert (answer["shape"], answer["num-classes"]) == ([8, 8, 1], 10)


def test_a_site_that_has_a_name_tells_what_it_does_and_a_simulated_client_does_not(
    capsys, monkeypatch
):
    monkeypatch.setattr(
        logging.getLogger("fedivon"), "handlers", []
    )  # another one would hold another test's stdout
    settings = compose(settings_of, "demo")
    assert (
        query(settings, **{"partition-id": 4, "num-partitions": 20})["name"] == ""
        and not capsys.readouterr().out
    )
    assert (
        query(settings, **{"partition-id": 4, "num-partitions": 20, "name": "north"})["name"]
        == "north"
    )
    query(settings, **{"partition-id": 24, "num-partitions": 20, "name": "100 %"})
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "fedivon | north, roll call: takes part"
    assert told[1].startswith(
        "fedivon | 100 %, roll call: the node's partition-id is 24, but data.clients is 20"
    )


def test_a_node_brings_its_own_data(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.integers(0, 255, (30, 8, 8), np.uint8), "y_train": np.arange(30) % 10}
    arrays |= {"x_test": rng.integers(0, 255, (9, 8, 8), np.uint8), "y_test": np.arange(9)}
    np.savez(tmp_path / "site.npz", **arrays)
    settings = compose(
        settings_of, "demo", overrides="data.source=nodes data.shape=[8,8,1] data.num_classes=10"
    )
    answer = query(settings, **{"partition-id": 2, "data-path": str(tmp_path / "site.npz")})
    assert (answer["partition-id"], answer["num-train"], answer["num-test"]) == (2, 30, 9)
    assert "each node names its own file" in query(settings, **{"partition-id": 2})["error"]
    missing = query(settings, **{"partition-id": 2, "data-path": str(tmp_path / "none.npz")})
    assert "none.npz" in missing["error"]


@pytest.mark.parametrize(
    ("device", "says"), [("cudda", "torch does not know"), ("cuda", "finds no CUDA here")]
)
def test_a_device_that_is_not_there_is_named_in_the_roll_call(device, says, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    answer = query(
        compose(settings_of, "demo", overrides=f"client.device={device}"), **{"partition-id": 1}
    )
    assert f"client.device is '{device}'" in answer["error"] and says in answer["error"]


def test_a_node_whose_file_lacks_some_classes_has_the_whole_model(tmp_path):
    x = np.zeros((6, 8, 8), np.uint8)
    y = np.arange(6) % 2
    np.savez(tmp_path / "site.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    settings = compose(settings_of, "demo", overrides="data.num_classes=10")
    client = method("fedivon").client(
        settings, partition_of(settings, {"data-path": str(tmp_path / "site.npz")})
    )
    assert client.flat.module.head.out_features == 10


def test_a_partition_that_does_not_exist_is_named():
    with pytest.raises(DataError, match="partition-id is 20, but data.clients is 20"):
        partition_of(compose(settings_of, "demo"), {"partition-id": 20, "num-partitions": 21})


def test_settings_survive_the_way_to_the_client():
    settings = compose(settings_of, "demo")
    assert type(settings).model_validate_json(settings.model_dump_json()) == settings
    assert json.loads(settings.model_dump_json())["strategy"] == "fedivon"
