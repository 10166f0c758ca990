"""What goes wrong at one client costs that client's reply, by name and reason, and nothing else."""

import re

import pytest

from fedivon_app.runs.folder import Run
from tests.e2e.helpers import configuration, launch

pytestmark = pytest.mark.e2e

SMALL = ["evaluation.every=0", "evaluation.clients_every=0", "evaluation.final_samples=0"]
REASONS = {
    1: "^the disk of this site is full$",
    2: "mean has .* values that are not finite",
    3: "length|shape|values",
    4: "precision has .* values that are not positive",
    5: "length|shape|values",
    6: "no reply in time",
}


def test_bad_replies_cost_themselves_alone(federation, tmp_path):
    """In round 2 two of eight clients are honest, which is the quorum.

    The others raise, send NaN, a wrong shape, a negative precision or another model's posterior, or
    are slow. Then they come back.
    """
    words = [
        *SMALL,
        "data.clients=8",
        "clients_per_round=null",
        "rounds=3",
        "model.factory=faulty:mlp",
        "server.quorum=2",
        "server.grace=8",
    ]
    config = configuration(tmp_path, "demo", "fedivon", *words)
    launched = launch(federation, config, nodes=8, at_once=2).completed()
    folder = launched.folder
    lines = launched.lines
    first, second, third = Run.open(folder).metrics()
    assert not first["dropped"] and len(first["clients"]) == 8
    assert third["merged"] and {0, 7} < {client["partition"] for client in third["clients"]}
    assert [client["partition"] for client in second["clients"]] == [0, 7] and second["merged"]
    said = {one["partition"]: one["reason"] for one in second["dropped"]}
    assert said.keys() == REASONS.keys()
    for partition, reason in REASONS.items():
        assert re.search(reason, said[partition]), said
        assert any(
            f"round 2: dropped the reply of partition {partition}:" in line for line in lines
        )
    told = (folder / "log.txt").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in told if "dropped the reply" in line] == [
        line for line in lines if "dropped the reply" in line
    ]
