"""Scores on the clients' test parts: they travel whole, and are pooled and spread as told."""

from dataclasses import dataclass

import numpy as np
import pytest

from fedivon_app.core.client_scores import from_metrics, gathered, spread, to_metrics
from fedivon_app.core.metrics import Tally

RNG = np.random.default_rng(0)


@dataclass(frozen=True, eq=False)
class Client:
    """Predictions for a client's test examples."""

    probabilities: np.ndarray
    labels: np.ndarray

    @property
    def tally(self) -> Tally:
        return Tally.of(self.probabilities, self.labels)


def client(size: int) -> Client:
    return Client(RNG.dirichlet(np.ones(3), size), RNG.integers(0, 3, size))


def test_tallies_come_out_as_they_went_in():
    tallies = {
        "gm": {"mean": client(5).tally},
        "pm": {"mean": client(7).tally, "mc": client(7).tally},
    }
    back = from_metrics(to_metrics(tallies) | {"num-examples": 7, "loss": 0.5})
    assert back.keys() == tallies.keys() and back["pm"].keys() == tallies["pm"].keys()
    for who, ways in tallies.items():
        for way, one in ways.items():
            assert back[who][way].scores() == one.scores()


def test_scores_are_of_all_examples_together_and_say_whose_they_are():
    first = client(4)
    second = client(30)
    record = gathered(
        {
            3: {"gm": {"mean": first.tally}, "pm": {"mean": first.tally}},
            1: {"gm": {"mean": second.tally}},
        },
        {1: 10, 3: 90},
        32,
    )
    together = Tally.of(
        np.concatenate([second.probabilities, first.probabilities]),
        np.concatenate([second.labels, first.labels]),
    ).scores()
    assert record["gm"]["clients_before_training"]["mean"] == pytest.approx(together)
    by_client = record["gm"]["clients_before_training"]["by_client"]
    assert [one["partition"] for one in by_client] == [1, 3]
    personal = record["pm"]["clients_after_training"]
    assert personal["mean"] == first.tally.scores()
    assert personal["over_clients"]["mean"]["clients"] == 1
    assert "mc" not in personal
    assert gathered({}, {}, 32) == {}


def test_scores_of_no_examples_or_without_the_mean_are_refused():
    """An empty tally, or one way of predicting that nobody can compare with others."""
    for tallies in ({"gm": {"mean": Tally()}}, {"pm": {"mc": client(3).tally}}):
        (who,) = tallies
        with pytest.raises(ValueError, match=f"the scores of the {who.upper()} are of no examples"):
            from_metrics(to_metrics(tallies))


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
