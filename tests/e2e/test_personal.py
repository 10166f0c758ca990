"""Personal models outlive their run: a resume goes on with them, and what is on disk scores as it did in the run.

pFedHB, whose heads are the clients' own and last from round to round; all four clients train, two of them report.
"""

import json
from pathlib import Path

import pytest

from fedivon_app.launch import Federation
from fedivon_app.personalise import kept_models, score_again
from fedivon_app.runs import Run
from tests.e2e.helpers import configuration, launch, numbers, resume

pytestmark = pytest.mark.e2e

SMALL = ["data.clients=4", "clients_per_round=2", "train_all_clients=true", "rounds=4", "run.checkpoint_every=1"]
SMALL += ["client.epochs=2", "client.mc_samples=1", "evaluation.every=4", "evaluation.clients_every=2"]
SMALL += ["evaluation.samples=2", "evaluation.final_samples=0", "run.client_state=run"]


def simulate(federation: Federation, runs: Path, *overrides: str) -> Path:
    failure, folder, lines = launch(federation, configuration(runs, "demo", "pfedhb", *SMALL, *overrides), nodes=4)
    assert failure is None, (failure, lines)
    return folder


@pytest.fixture(scope="module")
def undisturbed(federation, tmp_path_factory) -> Path:
    return simulate(federation, tmp_path_factory.mktemp("undisturbed"))


def test_every_line_says_whose_model_and_when(undisturbed):
    records = list(Run.open(undisturbed).metrics())
    assert [set(record.get("pm", {})) for record in records] == [set(), {"clients_after_training"}] * 2
    last = records[-1]
    assert set(last["gm"]) == {"clients_before_training", "test"}
    assert len(last["pm"]["clients_after_training"]["by_client"]) == 4 and last["silent"] == 2
    summary = json.loads((undisturbed / "summary.json").read_text())
    spread = summary["personal"]["clients_after_training"]["over_clients"]["mean"]
    assert spread["clients"] == 4 and 0 < spread["worst_decile"] <= spread["mean"] <= 1


def test_personal_models_survive_a_resume(federation, undisturbed, tmp_path):
    folder = simulate(federation, tmp_path, "run.stop_after=2")
    resume(federation, folder, 4)
    assert numbers(folder) == numbers(undisturbed)


def test_what_is_on_disk_scores_as_it_did_in_the_run(undisturbed):
    run = Run.open(undisturbed)
    last, again = list(run.metrics())[-1], score_again(run)
    for whose, where in (("pm", "clients_after_training"), ("gm", "clients_before_training")):
        assert json.loads(json.dumps(again[whose][where])) == last[whose][where]
    assert sorted(kept_models(run)) == [0, 1, 2, 3]
