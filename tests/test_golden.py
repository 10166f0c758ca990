"""No change of the code changes a method's numbers unless it says so.

Two rounds of each, against those on file. The clients are played by the workers of the inline
engine, so that every method is seen to run in it.
"""

import json

import pytest
import torch

from fedivon_app.clients.task import Carries
from fedivon_app.federation.inline_run import inline_grid
from fedivon_app.federation.shared_nodes import SharedNodes
from fedivon_app.methods import METHODS, method
from tests import golden

KNOWN = json.loads(golden.GOLDEN.read_text())
SLOW = "bayes-admm-full"
KEEPING = [
    name for name in METHODS if Carries.TRAINING in method(name).client.carries and name != SLOW
]
COUNTED = ("accuracy", "ece", "over_clients")  # one example that goes the other way moves these


def test_every_method_is_on_file():
    assert list(KNOWN) == [*METHODS, *golden.VARIANTS]


@pytest.fixture(scope="module")
def workers():
    golden.prepare_process()
    with inline_grid(golden.CLIENTS, cores=2) as grid:
        yield grid


@pytest.mark.parametrize("case", KNOWN)
def test_the_numbers_are_those_on_file(case, workers, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    found = golden.condensed(golden.run(case, grid=workers))
    assert list(found) == list(KNOWN[case])
    for path, value in KNOWN[case].items():
        slack = 0.03 if any(word in path for word in COUNTED) else 1e-6
        assert found[path] == pytest.approx(value, rel=2e-3, abs=slack), path


ON_NODES = ["run.client_state=node"]
SECURE = ["privacy.secure_aggregation=true", "evaluation.personal=false"]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("fedivon", SECURE),
        ("fedavg, all train", []),
        *((name, []) for name in KEEPING),
        *((name, ON_NODES) for name in KEEPING[:3]),
    ],
)
def test_two_nodes_that_play_all_clients_give_the_same_to_the_digit(
    case, words, monkeypatch, tmp_path
):
    """What a client kept follows it from node to node, wherever it is kept."""
    golden.prepare_process()
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setenv("FEDIVON_STATE", str(tmp_path))
    alone = golden.run(case, *words)
    shared = SharedNodes(golden.InProcess(2), golden.CLIENTS)
    assert golden.run(case, *words, grid=shared) == alone
