"""Clients on real data, called as Flower calls them."""

import json
import logging

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedivon_app.client_app import app
from fedivon_app.core.client_scores import from_metrics
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import DataError
from fedivon_app.core.posterior import Posterior
from fedivon_app.datasets.loading import division, partition_of
from fedivon_app.methods import METHODS, method, settings_of
from tests.clients.helpers import first_payload

# bayes-admm-full takes all examples at once, and no chances; tests/clients/test_personal.py has those with a PM
MINIBATCHES = [
    name
    for name, (_, client) in METHODS.items()
    if name != "bayes-admm-full" and not client.personalises
]


def make(strategy: str, partition: int = 3, **overrides):
    words = [f"{key.replace('__', '.')}={value}" for key, value in overrides.items()]
    if strategy == "bayes-admm-full":
        words.append("model.name=linear")
    settings = compose(settings_of, "demo", strategy, words)
    client = method(strategy).client(
        settings, partition_of(settings, {"partition-id": partition, "num-partitions": 20})
    )
    arrays = client.codec.encode(first_payload(settings))
    return (
        client,
        list(arrays.values()),
        {"keys": list(arrays), "round": 1, "learning-rate": settings.client.learning_rate},
    )


@pytest.mark.parametrize("strategy", MINIBATCHES)
def test_training_lowers_the_clients_own_loss(strategy):
    client, parameters, config = make(strategy, client__epochs=20)
    first = client.fit(parameters, config)[2]["loss"]
    client, _, _ = make(strategy, client__epochs=1)
    result, num_examples, _ = make(strategy, client__epochs=20)[0].fit(parameters, config)
    again = client.fit(result, config)[2]["loss"]
    assert again < 0.7 * first
    assert num_examples == len(client.partition.train)
    assert [a.shape for a in result] == [p.shape for p in parameters]


@pytest.mark.parametrize("strategy", MINIBATCHES)
def test_one_seed_one_result_and_another_round_another(strategy):
    def fit(server_round):
        client, parameters, config = make(strategy)
        torch.rand(server_round)  # the state of the global generator does not matter
        return client.fit(parameters, config | {"round": server_round})[0]

    one = fit(1)
    same = fit(1)
    other = fit(2)
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one[0], other[0])


def test_methods_see_the_same_examples_in_the_same_order():
    tasks = [make(strategy) for strategy in MINIBATCHES]
    batches = [
        [labels for _, labels in client.task(config).batches()] for client, _, config in tasks
    ]
    for first, *others in zip(*batches, strict=True):
        assert all(torch.equal(first, other) for other in others)


def test_batches_show_every_example_once_an_epoch():
    client, _, config = make("fedavg", client__epochs=3, client__batch_size=7)
    task = client.task(config)
    shown = torch.cat([labels for _, labels in task.batches()])
    assert torch.equal(shown.bincount(minlength=10), 3 * task.labels.bincount(minlength=10))


def test_fedavg_client_is_plain_adam():
    client, parameters, config = make("fedavg")
    task = client.task(config)
    result = client.fit(parameters, config)[0][0]
    client.flat.load(parameters[0])
    optimizer = torch.optim.Adam(
        client.flat.module.parameters(), lr=config["learning-rate"], weight_decay=2e-4
    )
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
    client, (mean, precision), config = make("fedivon")
    sharp = precision * 100
    (_, moved), _, _ = client.fit([mean, sharp], config)
    np.testing.assert_allclose(moved, sharp, rtol=0.2)


def test_an_ivon_client_that_starts_at_the_mean_takes_its_own_hessian():
    client, (mean, precision), config = make("fedivon", client__start="mean")
    (moved, learned), _, _ = client.fit([mean, precision * 1e6], config)
    np.testing.assert_allclose(learned, precision, rtol=0.2)
    assert np.abs(moved - mean).max() > 1e-3


def flipout(**overrides):
    client, parameters, config = make("flipout", **overrides)
    return client, parameters, config | {"learning-rate": 1e-3}


def test_a_variational_client_starts_from_the_servers_deviations_or_from_its_own():
    """Adam moves rho by at most 0.001 a step here: sigma stays near where it began."""
    client, (mean, precision), config = flipout()
    (_, learned), _, _ = client.fit([mean, precision * 4], config)
    np.testing.assert_allclose(learned, precision * 4, rtol=0.1)
    client, _, _ = flipout(client__start="mean")
    (_, learned), _, _ = client.fit([mean, precision * 4], config)
    np.testing.assert_allclose(learned, precision, rtol=0.1)


def test_deviations_that_a_merge_made_too_small_are_raised():
    client, (mean, precision), config = flipout(client__smallest_sigma=0.01, client__epochs=1)
    (_, learned), _, _ = client.fit([mean, np.full_like(precision, 1e20)], config)
    np.testing.assert_allclose(learned, 1e4, rtol=0.1)


def test_the_prior_is_fixed_or_the_servers_posterior():
    """With a rate that lets it move: a server that is certain holds the means, a wide prior does not."""
    moved = {}
    for prior in ("fixed", "global"):
        client, (mean, precision), config = flipout(client__prior=prior, client__epochs=5)
        sharp = np.full_like(precision, 1e8)
        (after, _), _, _ = client.fit([mean, sharp], config | {"learning-rate": 1e-2})
        moved[prior] = np.abs(after - mean).mean()
    assert moved["global"] < 0.5 * moved["fixed"]


def test_the_fixed_prior_is_a_gaussian_of_the_given_variance():
    client, (mean, precision), _ = flipout(client__prior_variance=4)
    assert client.prior(Posterior(mean, precision)) == (0.0, 0.25)


def test_a_dropout_client_trains_the_same_weights_with_noise():
    client, parameters, config = make("mc-dropout")
    plain, others, _ = make("fedavg")
    np.testing.assert_array_equal(parameters[0], others[0])
    assert not np.array_equal(
        client.fit(parameters, config)[0][0], plain.fit(parameters, config)[0][0]
    )


@pytest.mark.parametrize("strategy", METHODS)
def test_evaluation_is_of_the_received_model_on_the_clients_own_labels(strategy):
    client, parameters, config = make(strategy)
    _, num_examples, metrics = client.evaluate(parameters, config)
    source = client.partition.source
    held = set(source.y_train[client.partition.train].tolist())
    assert num_examples == sum(label in held for label in source.y_test.tolist())
    assert from_metrics(metrics)["gm"]["mean"].scores()["accuracy"] < 0.6
    np.testing.assert_array_equal(parameters[0], make(strategy)[1][0])


INDEPENDENT = ["fedavg", "fedivon", "fedivon-personal", "flipout", "mc-dropout", "fedlaplace"]


def test_which_methods_clients_go_on_from_what_they_kept():
    found = [
        name
        for name, (_, client) in METHODS.items()
        if not client.goes_on(compose(settings_of, "demo", name))
    ]
    assert sorted(found) == sorted(INDEPENDENT)
    for name, word in (
        ("fedavg", "client.optimizer_state=kept"),
        ("fedivon-personal", "client.beta=0"),
    ):
        assert method(name).client.goes_on(compose(settings_of, "demo", name, [word]))


@pytest.mark.parametrize("strategy", INDEPENDENT)
def test_what_such_a_client_did_in_earlier_rounds_does_not_matter(strategy, tmp_path):
    def last_round(*earlier: int) -> list[np.ndarray]:
        kept = {
            "run": "run",
            "client-state": str(tmp_path / f"{len(earlier)}"),
            "total-examples": 1000,
        }
        for server_round in (*earlier, 3):
            client, parameters, config = make(strategy, evaluation__personal=True)
            result = client.fit(
                parameters, config | kept | {"round": server_round, "last-merged": server_round - 1}
            )
        return result[0]

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
