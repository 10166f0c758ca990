"""Personal models: kept from round to round, scored beside the global one, whatever the method."""

import numpy as np
import pytest
from flwr.app import RecordDict

from fedivon_app.clients.state import recall_personal, with_personal
from fedivon_app.clients.task import Carries
from fedivon_app.core.client_scores import from_metrics
from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.metrics import Tally
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_point
from fedivon_app.methods import METHODS, settings_of
from tests.clients.helpers import arrays_of, first_payload, instructions, new_client

PERSONAL = [name for name, found in METHODS.items() if Carries.MODEL in found.client.carries]


def client(strategy, state, folder, *words):
    words = ["evaluation.personal=true", "evaluation.samples=4", *words]
    return new_client(compose(settings_of, "demo", strategy, words), state, folder)


def begin(strategy):
    return first_payload(compose(settings_of, "demo", strategy))


@pytest.mark.parametrize("strategy", ["fedavg", "fedivon", "scaffold"])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_model_after_training_is_scored_beside_the_one_received(strategy, restarted, tmp_path):
    state = RecordDict()
    payload = begin(strategy)
    one = client(strategy, state, tmp_path)
    told = instructions(one)
    before = one.score(payload, told)
    assert set(before) == {"gm"}  # it has not trained yet
    trained = one.work(payload, told).payload
    if restarted:
        state = RecordDict()  # what Flower kept is gone; what is on disk is not
    again = client(strategy, state, tmp_path)
    scores = again.score(payload, instructions(again, last_merged=1))
    assert scores["gm"]["mean"].scores() == before["gm"]["mean"].scores()
    images, labels = again.examples("test", again.partition.test)
    exact = Tally.of(predict_point(again.flat, trained.posterior, images, 4, 0), labels.numpy())
    assert scores["pm"]["mean"].scores() == exact.scores()
    assert ("mc" in scores["pm"]) == (strategy == "fedivon")
    assert exact.scores()["accuracy"] > before["gm"]["mean"].scores()["accuracy"]


@pytest.mark.parametrize("strategy", ["fedavg", "fedivon", "scaffold"])
def test_flower_is_told_of_both_models(strategy, tmp_path):
    payload = begin(strategy)
    one = client(strategy, None, tmp_path)
    keys = {"keys": list(one.codec.encode(payload))}
    one.fit(arrays_of(payload), keys | instructions(one).to_config())
    told = instructions(one, last_merged=1)
    _, _, metrics = one.evaluate(arrays_of(payload), keys | told.to_config())
    found = from_metrics(metrics)
    expected = one.score(payload, told)
    assert {who: set(ways) for who, ways in found.items()} == {
        who: set(ways) for who, ways in expected.items()
    }
    for who, ways in expected.items():
        for way, tally in ways.items():
            assert found[who][way].to_dict() == tally.to_dict()


def test_a_global_model_that_is_none_is_not_scored(tmp_path):
    payload = begin("local")
    one = client("local", None, tmp_path)
    assert one.score(payload, instructions(one, score_gm=False)) == {}
    one.work(payload, instructions(one))
    after = one.score(payload, instructions(one, score_gm=False, last_merged=1))
    assert set(after) == {"pm"}


@pytest.mark.parametrize("strategy", PERSONAL)
def test_a_personal_model_learns_and_one_seed_makes_one(strategy, tmp_path):
    """Three rounds from a server that stays as it was; twice."""
    payload = begin(strategy)

    def losses(folder):
        state = RecordDict()
        one = client(strategy, state, folder)
        found = [one.score(payload, instructions(one))["gm"]["mean"].nll]
        for number in (1, 2, 3):
            one = client(strategy, state, folder)
            one.work(payload, instructions(one, number))
            asked = instructions(one, number, last_merged=number)
            found.append(one.score(payload, asked)["pm"]["mean"].nll)
        return found

    def kept(folder):
        one = client(strategy, None, folder)
        return one.memory(instructions(one)).recall(3)

    first = losses(tmp_path / "one")
    assert first[3] < first[0]
    assert losses(tmp_path / "two") == first
    memory = kept(tmp_path / "one")
    same = kept(tmp_path / "two")
    assert memory.keys() == same.keys()
    for name, array in memory.items():
        np.testing.assert_array_equal(array, same[name])


def test_a_client_that_need_not_report_trains_and_sends_nothing(tmp_path):
    payload = begin("fedivon")
    one = client("fedivon", RecordDict(), tmp_path)
    told = instructions(one, learning_rate=0.1, report=False)
    reply = one.work(payload, told)
    assert reply.payload is None and reply.num_examples > 0 and reply.metrics["loss"] > 0
    assert recall_personal(one.memory(told).recall(1)) is not None
    config = {"keys": ["mean", "precision"], **told.to_config()}
    sent, num_examples, metrics = one.fit(arrays_of(payload), config)
    assert sent == [] and num_examples == reply.num_examples and metrics["loss"] > 0


def test_a_personal_model_takes_the_place_of_the_one_before():
    memory = {"v": np.ones(2)}
    assert recall_personal(memory) is None
    first = Payload(Posterior(np.zeros(2), np.ones(2)), np.ones(3, np.float32))
    both = with_personal(with_personal(memory, first), Payload(Posterior(np.full(2, 5.0))))
    own = recall_personal(both)
    assert own.posterior.mean.tolist() == [5, 5]
    assert own.posterior.precision is None and own.buffers is None
    assert both["v"].tolist() == [1, 1]
    assert list(memory) == ["v"]  # it is as it was


def test_methods_that_do_not_personalise_keep_nothing_unless_asked(tmp_path):
    payload = begin("fedavg")
    asked = client("fedavg", None, tmp_path / "asked")
    plain = new_client(compose(settings_of, "demo", "fedavg"), None, tmp_path / "plain")
    for one in (asked, plain):
        one.work(payload, instructions(one))
    assert not plain.carried(plain.settings) and asked.carried(asked.settings) == Carries.MODEL
    assert (tmp_path / "asked").exists() and not (tmp_path / "plain").exists()
