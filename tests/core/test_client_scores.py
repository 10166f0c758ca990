"""Scores on the clients' test parts: they travel whole, and are pooled and spread as told."""

import numpy as np
import pytest

from fedivon_app.core.client_scores import from_metrics, gathered, spread, to_metrics
from fedivon_app.core.metrics import Tally

RNG = np.random.default_rng(0)


def tally(size: int) -> tuple[Tally, np.ndarray, np.ndarray]:
    probabilities = RNG.dirichlet(np.ones(3), size)
    labels = RNG.integers(0, 3, size)
    return Tally.of(probabilities, labels), probabilities, labels


def test_tallies_come_out_as_they_went_in():
    tallies = {"gm": {"mean": tally(5)[0]}, "pm": {"mean": tally(7)[0], "mc": tally(7)[0]}}
    back = from_metrics(to_metrics(tallies) | {"num-examples": 7, "loss": 0.5})
    assert back.keys() == tallies.keys() and back["pm"].keys() == tallies["pm"].keys()
    for who, ways in tallies.items():
        for way, one in ways.items():
            assert back[who][way].scores() == one.scores()


def test_scores_are_of_all_examples_together_and_say_whose_they_are():
    first = tally(4)
    second = tally(30)
    record = gathered(
        {3: {"gm": {"mean": first[0]}, "pm": {"mean": first[0]}}, 1: {"gm": {"mean": second[0]}}},
        {1: 10, 3: 90},
        32,
    )
    together = Tally.of(
        np.concatenate([second[1], first[1]]), np.concatenate([second[2], first[2]])
    ).scores()
    assert record["gm"]["clients_before_training"]["mean"] == pytest.approx(together)
    assert [c["partition"] for c in record["gm"]["clients_before_training"]["by_client"]] == [1, 3]
    personal = record["pm"]["clients_after_training"]
    assert (
        personal["mean"] == first[0].scores() and personal["over_clients"]["mean"]["clients"] == 1
    )
    assert "mc" not in personal
    assert gathered({}, {}, 32) == {}


def test_the_spread_over_clients_by_hand():
    clients = [{"num_train": 10 * (k + 1), "accuracy": k / 19} for k in range(20)]
    found = spread(clients)["mean"]
    assert found["mean"] == pytest.approx(0.5)
    assert found["weighted"] == pytest.approx(sum((k + 1) * k for k in range(20)) / 19 / 210)
    assert found["worst_decile"] == pytest.approx((0 + 1 / 19) / 2)
    assert found["std"] == pytest.approx(np.std(np.arange(20) / 19))
    assert "mc" not in spread(clients)
    with_samples = [client | {"mc": {"accuracy": 1.0}} for client in clients]
    assert spread(with_samples)["mc"]["worst_decile"] == 1.0
