"""Real `flwr run`s in the Ray simulation.

The same seed gives the same numbers, also if a run is stopped and resumed; a run leaves its folder
behind, and personal models outlive their run. The method is FedIvon, with clients that go on from
their own PMs (beta = 0); all four of them train, two report.
"""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedivon_app.cli.main import main
from fedivon_app.federation.bundle import copy_app
from fedivon_app.federation.inline_federation import InlineFederation
from fedivon_app.federation.run_maker import RunMaker
from fedivon_app.federation.superlink import BIN
from fedivon_app.runs.folder import Run
from fedivon_app.runs.personalise import kept_models, score_again
from tests.e2e.helpers import PROJECT, Launched, configuration, launch, numbers, resume

pytestmark = pytest.mark.e2e

SMALL = [
    "data.clients=4",
    "clients_per_round=2",
    "train_all_clients=true",
    "rounds=4",
    "client.beta=0",
    "data.holdout=100",
    "evaluation.every=2",
    "evaluation.samples=4",
    "evaluation.final_samples=8",
    "evaluation.clients_every=2",
    "run.checkpoint_every=1",
    "run.client_state=run",
]


def simulate(federation: RunMaker, runs: Path, *overrides: str, at_once: int = 1) -> Launched:
    """Run four rounds in the simulation."""
    config = configuration(runs, "demo", "fedivon-personal", *SMALL, *overrides)
    return launch(federation, config, nodes=4, at_once=at_once).completed()


@pytest.fixture(scope="module")
def undisturbed(federation, tmp_path_factory) -> Launched:
    """A run with as many clients as there are nodes, two of them at once."""
    runs = tmp_path_factory.mktemp("undisturbed")
    return simulate(federation, runs, "data.clients=null", at_once=2)


def test_a_run_leaves_its_folder(undisturbed):
    folder = undisturbed.folder
    records = numbers(folder)
    assert [r["round"] for r in records] == [1, 2, 3, 4]
    assert all(len(r["clients"]) == 2 and r["merged"] and not r["dropped"] for r in records)
    assert set(records[1]["gm"]["test"]) == set(records[1]["gm"]["holdout"]) == {"mean", "mc"}
    assert records[1]["gm"]["clients_before_training"]["mean"]["accuracy"] >= 0
    assert records[-1]["gm"]["test"]["mc"]["samples"] == 8
    assert any(line.startswith("round 4/4") for line in undisturbed.lines)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["final"]["test"] == records[-1]["gm"]["test"]
    assert yaml.safe_load((folder / "settings.yaml").read_text())["data"]["clients"] == 4
    run = Run.open(folder)
    assert [saved.round for saved in run.checkpoints()] == [3, 4]
    scores = {
        r["round"]: r["gm"]["holdout"]["mc"]["nll"] for r in records if "holdout" in r.get("gm", {})
    }
    assert run.best().round == min(scores, key=scores.get)


def test_every_line_says_whose_model_and_when(undisturbed):
    folder = undisturbed.folder
    records = list(Run.open(folder).metrics())
    personal = [set(record.get("pm", {})) for record in records]
    assert personal == [set(), {"clients_after_training"}] * 2
    last = records[-1]
    assert set(last["gm"]) == {"clients_before_training", "test", "holdout"}
    assert len(last["pm"]["clients_after_training"]["by_client"]) == 4 and last["silent"] == 2
    summary = json.loads((folder / "summary.json").read_text())
    spread = summary["personal"]["clients_after_training"]["over_clients"]["mean"]
    assert spread["clients"] == 4 and 0.3 < spread["worst_decile"] <= spread["mean"] <= 1


def test_a_run_stopped_and_resumed_ends_with_the_same_numbers(federation, undisturbed, tmp_path):
    """It is stopped after round 2, with traces of a round 3 that a killed server left behind.

    One client trains at a time.
    """
    folder = simulate(federation, tmp_path, "run.stop_after=2").folder
    assert json.loads((folder / "summary.json").read_text())["status"] == "stopped"
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps(numbers(folder)[-1] | {"round": 3}) + '\n{"round": 4, "cl')
    (folder / "checkpoint" / ".round-000003.partial").mkdir()
    resume(federation, folder, 4)
    assert numbers(folder) == numbers(undisturbed.folder)
    assert json.loads((folder / "summary.json").read_text())["status"] == "completed"


def test_the_inline_engine_gives_the_same_numbers_as_flowers(undisturbed, tmp_path):
    with InlineFederation() as inline:
        found = simulate(inline, tmp_path, at_once=2)
    assert numbers(found.folder) == numbers(undisturbed.folder)


def test_secure_sums_are_those_in_the_open_in_both_engines(federation, tmp_path):
    """Integers have one sum in whatever order they come, so that the engines agree to the bit."""
    words = ["data.clients=4", "clients_per_round=4", "rounds=1", "run.client_state=run"]
    words += ["evaluation.clients_every=1"]
    secure = "privacy.secure_aggregation=true"

    def made(maker: RunMaker, name: str, *more: str) -> Path:
        config = configuration(tmp_path / name, "demo", "fedivon", *words, *more)
        return launch(maker, config, nodes=4, at_once=2).completed().folder

    with InlineFederation() as inline:
        plain = made(inline, "plain")
        mine = made(inline, "inline", secure)
    flowers = made(federation, "flower", secure)
    (record,) = numbers(flowers)
    (other,) = numbers(mine)
    for each in (record, other):  # the questions name the run, which has another name in each
        assert each["secure"].pop("bytes") < 8000
    assert record == other
    assert len(record["clients"]) == 4 and record["merged"] and not record["dropped"]
    found, expected = (
        Run.load(folder / "checkpoint" / "round-000001").payload.posterior
        for folder in (flowers, plain)
    )
    np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.precision, expected.precision, rtol=1e-5)


def test_what_is_on_disk_scores_as_it_did_in_the_run(undisturbed):
    run = Run.open(undisturbed.folder)
    last = list(run.metrics())[-1]
    again = score_again(run)
    for whose, where in (("pm", "clients_after_training"), ("gm", "clients_before_training")):
        assert json.loads(json.dumps(again[whose][where])) == last[whose][where]
    assert sorted(kept_models(run)) == [0, 1, 2, 3]


def test_the_demo_command_compares_methods_and_exits_zero(tmp_path, capfd):
    overrides = ["rounds=2", "data.clients=3", "clients_per_round=2", "evaluation.final_samples=4"]
    words = ["--cpus", str(os.cpu_count()), "--runs", str(tmp_path), "--set", *overrides]
    code = main(["run", "demo", "--strategy", "fedavg", "fedivon", *words])
    shown = capfd.readouterr().out
    assert code == 0
    (point,) = (numbers(folder)[-1] for folder in tmp_path.glob("*-fedavg"))
    (posterior,) = (numbers(folder)[-1] for folder in tmp_path.glob("*-fedivon"))
    assert set(point["gm"]["test"]) == {"mean"} and set(posterior["gm"]["test"]) == {"mean", "mc"}
    for expected in ("accuracy %", "GM at the mean", "GM, 4 samples", "run folders:", "round 2/2"):
        assert expected in shown


def test_the_bundle_holds_the_settings(tmp_path):
    """It is built from a copy: Flower names the app by its folder, and refuses an underscore."""
    app = copy_app(PROJECT, tmp_path / "fedivon")
    done = subprocess.run(
        [BIN / "flwr", "build", "--app", app],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    bundles = [*tmp_path.glob("*.fab"), *app.glob("*.fab")]
    assert bundles, done.stdout + done.stderr
    names = zipfile.ZipFile(bundles[0]).namelist()
    wanted = {"conf/experiment/demo.yaml", "conf/strategy/fedivon.yaml", "datasets/partition.py"}
    assert wanted <= set(names)
    assert not [name for name in names if "test_" in name]
