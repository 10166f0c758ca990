"""Personal models: kept from round to round, scored beside the global one, whatever the method."""

import numpy as np
import pytest
from flwr.app import RecordDict

from fedivon_app.clients.state import keep_personal, recall_personal
from fedivon_app.core.client_scores import from_metrics
from fedivon_app.core.codec import Payload
from fedivon_app.core.metrics import Tally
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_point
from fedivon_app.core.compose import compose
from fedivon_app.datasets.loading import partition_of
from fedivon_app.methods import METHODS, method, settings_of
from tests.clients.helpers import first_payload


def client(strategy, state, folder, *words):
    settings = compose(
        settings_of, "demo", strategy, ["evaluation.personal=true", "evaluation.samples=4", *words]
    )
    partition = partition_of(settings, {"partition-id": 3, "num-partitions": 20})
    return method(strategy).client(settings, partition, state, folder)


def begin(strategy):
    return first_payload(compose(settings_of, "demo", strategy))


@pytest.mark.parametrize("strategy", ["fedavg", "fedivon", "scaffold"])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_model_after_training_is_scored_beside_the_one_received(strategy, restarted, tmp_path):
    state = RecordDict()
    payload = begin(strategy)
    one = client(strategy, state, tmp_path)
    arrays = one.codec.encode(payload)
    config = {"keys": list(arrays), "round": 1, "learning-rate": one.settings.client.learning_rate}
    before = from_metrics(one.evaluate(list(arrays.values()), config)[2])
    assert set(before) == {"gm"}  # it has not trained yet
    trained, _, _ = one.fit(list(arrays.values()), config)
    if restarted:
        state = RecordDict()  # what Flower kept is gone; what is on disk is not
    again = client(strategy, state, tmp_path)
    scores = from_metrics(again.evaluate(list(arrays.values()), config | {"last-merged": 1})[2])
    assert scores["gm"]["mean"].scores() == before["gm"]["mean"].scores()
    own = again.codec.decode(dict(zip(arrays, trained, strict=True)))
    images, labels = again.examples("test", again.partition.test)
    exact = Tally.of(predict_point(again.flat, own.posterior, images, 4, 0), labels.numpy())
    assert scores["pm"]["mean"].scores() == exact.scores()
    assert ("mc" in scores["pm"]) == (strategy == "fedivon")
    assert exact.scores()["accuracy"] > before["gm"]["mean"].scores()["accuracy"]


@pytest.mark.parametrize(
    "strategy", [name for name, (_, kind) in METHODS.items() if kind.personalises]
)
def test_a_personal_model_learns_and_one_seed_makes_one(strategy, tmp_path):
    """Three rounds from a server that stays as it was; twice."""

    def rounds(folder):
        state = RecordDict()
        arrays = client(strategy, None, folder).codec.encode(begin(strategy))
        config = {
            "keys": list(arrays),
            "learning-rate": client(strategy, None, folder).settings.client.learning_rate,
        }
        scores = [
            from_metrics(
                client(strategy, state, folder).evaluate(list(arrays.values()), config)[2]
            )["gm"]
        ]
        for number in (1, 2, 3):
            one = client(strategy, state, folder)
            one.fit(list(arrays.values()), config | {"round": number, "last-merged": number - 1})
            asked = config | {"last-merged": number}
            scores.append(from_metrics(one.evaluate(list(arrays.values()), asked)[2])["pm"])
        return [score["mean"].scores()["nll"] for score in scores], one.memory(config).recall(3)

    losses, memory = rounds(tmp_path / "one")
    assert losses[3] < losses[0]
    again, same = rounds(tmp_path / "two")
    assert again == losses
    for name, array in memory.items():
        np.testing.assert_array_equal(array, same[name])


def test_a_client_that_need_not_report_trains_and_sends_nothing(tmp_path):
    payload = begin("fedivon")
    state = RecordDict()
    one = client("fedivon", state, tmp_path)
    arrays = one.codec.encode(payload)
    config = {"keys": list(arrays), "round": 1, "learning-rate": 0.1, "report": False}
    sent, num_examples, metrics = one.fit(list(arrays.values()), config)
    assert sent == [] and num_examples > 0 and metrics["loss"] > 0
    assert recall_personal(one.memory(config).recall(1)) is not None


def test_a_personal_model_takes_the_place_of_the_one_before():
    memory = {"v": np.ones(2)}
    assert recall_personal(memory) is None
    keep_personal(memory, Payload(Posterior(np.zeros(2), np.ones(2)), np.ones(3, np.float32)))
    keep_personal(memory, Payload(Posterior(np.full(2, 5.0))))
    own = recall_personal(memory)
    assert (
        own.posterior.mean.tolist() == [5, 5]
        and own.posterior.precision is None
        and own.buffers is None
    )
    assert memory["v"].tolist() == [1, 1]


def test_methods_that_do_not_personalise_keep_nothing_unless_asked(tmp_path):
    plain = method("fedavg").client(
        compose(settings_of, "demo", "fedavg"),
        client("fedavg", None, tmp_path).partition,
        None,
        tmp_path,
    )
    assert not plain.keeps and client("fedavg", None, tmp_path).keeps
