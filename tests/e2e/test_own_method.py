"""The example package by Flower's own `flwr run`: its method, its rule and its score."""

import pytest

from tests.e2e.helpers import PROJECT, configuration, launch, numbers

pytestmark = pytest.mark.e2e

SHORT = [
    "data.clients=3",
    "clients_per_round=3",
    "data.partition=iid",
    "rounds=2",
    "evaluation.every=1",
    "evaluation.clients_every=1",
    "evaluation.scores=[own_method.scores:MARGIN]",
]


def test_the_example_package_runs_by_flwr_run(federation, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(PROJECT / "examples" / "own-method")  # who reads it needs it too
    config = configuration(tmp_path, "demo", "own_method.method:METHOD", *SHORT)
    folder = launch(federation, config, nodes=3).completed().folder
    assert folder.name.endswith("-demo-own_method.method-METHOD")
    first, last = numbers(folder)
    assert all(record["merged"] and not record["dropped"] for record in (first, last))
    margins = [record["gm"]["test"]["mean"]["margin"] for record in (first, last)]
    assert -1 < margins[0] < margins[1] < 1
    by_client = last["gm"]["clients_before_training"]["by_client"]
    assert len(by_client) == 3 and all("margin" in client for client in by_client)
