"""Scores on the clients' own test parts: pooled from sums, and the unsound ones named."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, MetricRecord

from fedivon_app.core.client_scores import to_metrics
from fedivon_app.core.metrics import Tally
from fedivon_app.core.scores import Score
from tests.strategies.nodes import Nodes, fedivon, good, start

OWN = Score(
    "own",
    "Own",
    higher_is_better=True,
    sums=lambda probabilities, labels: np.ones(1),
    value=lambda tally: tally.sums["own"][0] / tally.count,
)


def test_clients_scores_are_pooled_not_averaged():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 60)
    labels = rng.integers(0, 3, 60)
    parts = [slice(0, 5), slice(5, 60)]

    def reply(partition, message):
        if message.metadata.message_type == "train":
            return good(partition, message)
        tally = Tally.of(probabilities[parts[partition]], labels[parts[partition]])
        return {"metrics": MetricRecord({"num-examples": 1, **to_metrics({"gm": {"mean": tally}})})}

    (record,) = start(fedivon(evaluation={"clients_every": 1}), Nodes(2, reply))
    scores = record["gm"]["clients_before_training"]
    assert scores["mean"] == pytest.approx(Tally.of(probabilities, labels).scores())
    assert [c["partition"] for c in scores["by_client"]] == [0, 1]


UNSCORED = {
    "an error": (Error(2, "ValueError: no data here"), "ValueError: no data here"),
    "silence": (None, "no reply in time"),
    "no metrics": ({}, "lacks 'metrics'"),
    "scores in words": (
        {"metrics": ConfigRecord({"gm.mean.count": "many"})},
        "lacks 'metrics' of the kind",
    ),
    "half a tally": ({"metrics": MetricRecord({"gm.mean.count": 3})}, "a tally needs 'correct'"),
    "no examples": (
        {"metrics": MetricRecord(to_metrics({"gm": {"mean": Tally()}}))},
        "the GM are of no examples",
    ),
    "samples alone": (
        {"metrics": MetricRecord(to_metrics({"pm": {"mc": Tally()}}))},
        "the PM are of no examples",
    ),
}


@pytest.mark.parametrize("kind", UNSCORED)
def test_a_client_without_sound_scores_is_named_and_the_others_count(kind, caplog):
    bad, why = UNSCORED[kind]
    tally = Tally.of(np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1]))

    def reply(partition, message):
        if message.metadata.message_type == "train":
            return good(partition, message)
        return (
            bad
            if partition == 1
            else {"metrics": MetricRecord(to_metrics({"gm": {"mean": tally}}))}
        )

    (record,) = start(fedivon(evaluation={"clients_every": 1}), Nodes(3, reply))
    scores = record["gm"]["clients_before_training"]
    assert [c["partition"] for c in scores["by_client"]] == [0, 2]
    assert scores["mean"] == pytest.approx(tally.scores())
    (line,) = [message for message in caplog.messages if "no scores" in message]
    assert line.startswith("round 1: no scores of partition 1: ") and why in line


def test_sums_that_give_no_value_of_an_own_score_are_named_and_the_others_count(caplog):
    plain = Tally.of(np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1]))

    def reply(partition, message):
        if message.metadata.message_type == "train":
            return good(partition, message)
        sums = np.zeros(0) if partition == 1 else np.ones(1)
        tally = replace(plain, sums={"own": sums})
        return {"metrics": MetricRecord(to_metrics({"gm": {"mean": tally}}))}

    scores = {"clients_every": 1, "scores": ["tests.strategies.test_client_evaluation:OWN"]}
    (record,) = start(fedivon(evaluation=scores), Nodes(3, reply))
    found = record["gm"]["clients_before_training"]
    assert [c["partition"] for c in found["by_client"]] == [0, 2] and found["mean"]["own"] == 0.5
    assert "no scores of partition 1: the score own cannot be computed" in caplog.text
