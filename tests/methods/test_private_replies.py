"""What leaves the clients of every private method, field by field, in whole runs."""

import pytest

from fedivon_app.methods import METHODS
from tests.clients.test_private import SENT
from tests.methods.test_coupled import run
from tests.methods.test_secure import SMALL, Losing

POINTS = {"mean"}
POSTERIORS = {"mean", "precision"}
ARRAYS = {  # all of them made of noisy gradients alone: tests/clients/test_private.py replays them
    "fedavg": POINTS,
    "fedprox": POINTS,
    "mc-dropout": POINTS,
    "scaffold": POINTS | {"control"},
    "fedivon": POSTERIORS,
    "fedivon-personal": POSTERIORS,
    "bayes-admm": POSTERIORS,
    "bregman-admm": POSTERIORS,
    "pvi": POSTERIORS,
    "fed-admm": POINTS,
    "feddyn": POINTS,
    "fedlap": POINTS,
}


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.private])
def test_nothing_but_these_fields_leaves_the_clients_of_a_private_method(name, tmp_path):
    grid = Losing()
    _, records = run(name, tmp_path, *SMALL, "privacy.epsilon=8", grid=grid, rounds=2)
    assert [record["merged"] for record in records] == [True, True]
    asked = {what for what, *_ in grid.seen}
    assert asked == {"query", "train"}
    train = {"posterior": ARRAYS[name], "metrics": {"num-examples", "epsilon", "noise"}}
    sent = {"query": SENT["query"], "train": train}
    for what, _, _, reply in grid.seen:
        assert {part: set(record) for part, record in reply.content.items()} == sent[what]
        if what == "query":
            assert reply.content["properties"]["num-test"] == 0
