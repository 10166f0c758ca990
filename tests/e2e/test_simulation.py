"""Real `flwr run`s in the Ray simulation: the same seed, the same numbers, also if stopped and resumed."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

from fedivon_app.bundle import copy_app
from fedivon_app.cli import main
from fedivon_app.runs import Run
from fedivon_app.superlink import BIN, PROJECT
from tests.e2e import helpers
from tests.e2e.helpers import configuration, numbers, resume

pytestmark = pytest.mark.e2e

SMALL = ["data.clients=4", "clients_per_round=2", "rounds=6", "data.holdout=100", "evaluation.every=2"]
SMALL += ["evaluation.samples=4", "evaluation.final_samples=8", "evaluation.clients_every=3", "run.checkpoint_every=1"]


def launch(federation, runs: Path, *overrides: str, at_once: int = 1):
    return helpers.launch(federation, configuration(runs, "demo", "fedivon", *SMALL, *overrides), 4, at_once)


@pytest.fixture(scope="module")
def undisturbed(federation, tmp_path_factory):
    """As many clients as there are nodes, two of them at once."""
    runs = tmp_path_factory.mktemp("undisturbed")
    failure, folder, lines = launch(federation, runs, "data.clients=null", at_once=2)
    assert failure is None, failure
    return folder, lines


def test_a_run_leaves_its_folder(undisturbed):
    folder, lines = undisturbed
    records = numbers(folder)
    assert [r["round"] for r in records] == [1, 2, 3, 4, 5, 6]
    assert all(len(r["clients"]) == 2 and r["merged"] and not r["dropped"] for r in records)
    assert set(records[1]["gm"]["test"]) == set(records[1]["gm"]["holdout"]) == {"mean", "mc"}
    assert records[2]["gm"]["clients_before_training"]["mean"]["accuracy"] >= 0
    assert records[-1]["gm"]["test"]["mc"]["samples"] == 8
    assert [line for line in lines if line.startswith("round 6/6")]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "completed" and summary["final"]["test"]["mean"]["accuracy"] > 0.1
    assert yaml.safe_load((folder / "settings.yaml").read_text())["data"]["clients"] == 4
    run = Run.open(folder)
    assert [number for number, _ in run.checkpoints()] == [5, 6]
    scores = {r["round"]: r["gm"]["holdout"]["mc"]["nll"] for r in records if "holdout" in r.get("gm", {})}
    assert run.best()["round"] == min(scores, key=scores.get)


def test_a_run_stopped_and_resumed_ends_with_the_same_numbers(federation, undisturbed, tmp_path):
    """Stopped after round 3, with traces of a round 4 that a killed server left behind; one client at a time."""
    failure, folder, _ = launch(federation, tmp_path, "run.stop_after=3")
    assert failure is None, failure
    assert json.loads((folder / "summary.json").read_text())["status"] == "stopped"
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps(numbers(folder)[-1] | {"round": 4}) + '\n{"round": 5, "cl')
    (folder / "checkpoint" / ".round-000004.partial").mkdir()
    resume(federation, folder, 4)
    assert numbers(folder) == numbers(undisturbed[0])
    assert json.loads((folder / "summary.json").read_text())["status"] == "completed"


def test_a_failing_run_says_why_in_one_line(federation, tmp_path):
    failure, folder, lines = launch(federation, tmp_path, "data.partition=dirichlett")
    assert "there is no partition rule 'dirichlett'" in failure
    assert [line for line in lines if line.startswith("error: there is no partition rule")]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "failed" and summary["detail"].startswith("there is no partition rule")


def test_the_demo_command_compares_methods_and_exits_zero(tmp_path, capfd):
    overrides = ["rounds=2", "data.clients=3", "clients_per_round=2", "evaluation.final_samples=4"]
    code = main(["run", "demo", "--strategy", "fedavg", "fedivon", "--runs", str(tmp_path), "--set", *overrides])
    shown = capfd.readouterr().out
    assert code == 0
    point, posterior = (numbers(next(tmp_path.glob(f"*-{name}")))[-1] for name in ("fedavg", "fedivon"))
    assert set(point["gm"]["test"]) == {"mean"} and set(posterior["gm"]["test"]) == {"mean", "mc"}
    for expected in ("accuracy %", "GM at the mean", "GM, 4 samples", "run folders:", "round 2/2"):
        assert expected in shown


def test_the_bundle_holds_the_settings(tmp_path):
    """From a copy: Flower takes a folder's name for the app's, and refuses some (an underscore) that checkouts have."""
    app = copy_app(PROJECT, tmp_path / "fedivon")
    done = subprocess.run(
        [BIN / "flwr", "build", "--app", app], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    bundles = [*tmp_path.glob("*.fab"), *app.glob("*.fab")]
    assert bundles, done.stdout + done.stderr
    names = zipfile.ZipFile(bundles[0]).namelist()
    assert {"conf/experiment/demo.yaml", "conf/strategy/fedivon.yaml", "datasets/partition.py"} <= set(names)
    assert not [name for name in names if "test_" in name]
