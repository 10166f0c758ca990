"""The membership attack: its advantage, and the sum that a server sees of a round."""

import re
import runpy
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fedivon_app import server_app
from fedivon_app.clients.task import ClientReply
from fedivon_app.core.codec import Coded, Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.datasets.sources import load
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained
from tests.documents import ROOT
from tests.golden import InProcess, context_of

TOOL = runpy.run_path(str(ROOT / "tools" / "membership.py"))


def test_advantage_is_that_of_the_best_threshold():
    """At a threshold of 1 three of four members are below, and one of four others."""
    members = np.array([0.1, 0.2, 0.3, 2.0])
    others = np.array([0.4, 1.5, 1.6, 3.0])
    assert TOOL["advantage"](members, others) == 0.75


def test_who_cannot_be_told_apart_gives_no_advantage():
    losses = np.array([0.3, 0.1, 0.2])
    assert TOOL["advantage"](losses, losses) == 0


def reply(mean, precision, num_examples):
    payload = Payload(Posterior(np.array([mean]), np.array([precision])))
    return ClientReply(Coded({}, payload), num_examples, {})


def test_the_sum_is_the_merge_of_all_replies_by_size():
    """Weights are 3/4 and 1/4: s = 3/4 + 3/4, and the mean is 3/4 of 8, divided by s."""
    settings = SimpleNamespace(merge=SimpleNamespace(rule="product"))
    start = Payload(Posterior(np.zeros(1), np.ones(1)))
    found = TOOL["merged"](settings, [reply(0.0, 1.0, 300), reply(8.0, 3.0, 100)], start)
    assert found.posterior.mean == pytest.approx([4.0])
    assert found.posterior.known_precision == pytest.approx([1.5])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A short run of three clients, whose inputs are standardised."""
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    words = ["data.source=digits", "data.clients=3", "rounds=2", "client.epochs=2"]
    words += ["clients_per_round=3"]
    words += ["data.standard={mean: [0.3], deviation: [0.5]}"]
    config = {"experiment": "demo", "strategy": "fedavg", "runs": str(tmp_path)}
    config["set"] = " ".join(f"'{word}'" for word in words)
    server_app.main(InProcess(3), context_of(config))
    (folder,) = tmp_path.glob("*-fedavg")
    return Run.open(folder)


def test_the_loss_is_that_of_the_trained_model(run):
    trained = Trained.open(run)
    source = load("digits")
    x, y = source.x_test[:20], source.y_test[:20]
    found = TOOL["losses"](trained, trained.payload, x, y)
    probabilities = trained.predict(trained.inputs(x), 0, 0).mean
    np.testing.assert_allclose(found, -np.log(probabilities[np.arange(20), y]), rtol=1e-3)


def test_the_command_attacks_the_model_a_reply_and_a_sum(run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["x", str(run.folder), "--epochs", "3", "--sites", "3"])
    TOOL["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "global model, by the loss",
        "reply of client 0, 3 epochs, by the loss",
        "reply of client 0, 3 epochs, by the fall of the loss",
        "sum of 3 replies, 3 epochs, by the loss",
        "sum of 3 replies, 3 epochs, by the fall of the loss",
    ]
    found = [float(re.search(r"advantage ([\d.]+)", line)[1]) for line in lines]
    assert all(0 <= one < 1 for one in found)
    assert found[2] > found[4]  # of one client's own examples its reply tells more than the sum
