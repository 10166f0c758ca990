"""Gaussian networks under Fischer et al.'s rules, by the sweep command, and a run that diverges."""

import json

import numpy as np
import pytest

from fedivon_app.cli.main import main
from fedivon_app.runs.folder import Run
from fedivon_app.runs.status import RunStatus
from tests.e2e.helpers import configuration, launch

pytestmark = pytest.mark.e2e


def test_a_sweep_of_pretrained_flipout_ends_with_uncertainty_and_pages(tmp_path, capfd):
    noise = tmp_path / "noise.npz"
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (50, 10, 10, 3), np.uint8)
    labels = np.arange(50) % 2
    np.savez(noise, x_train=pictures, y_train=labels, x_test=pictures, y_test=labels)
    words = [
        "merge.weighting=max-discrepancy",
        "rounds=2",
        "pretraining.fraction=0.4",
        "data.clients=4",
        "pretraining.epochs=20",
        "evaluation.final_samples=4",
        "evaluation.every=0",
        "client.prior=global",
        "evaluation.ood=npz",
        f"evaluation.ood_path={noise}",
        "model.options={sizes: 32}",
    ]
    command = ["sweep", "digits-fischer", "merge.rule=dwc", "--runs", str(tmp_path)]
    command += ["--set", *words]
    assert main(command) == 0
    (metrics,) = (tmp_path / "sweep-digits-fischer").glob("*/metrics.jsonl")
    run = Run.open(metrics.parent)
    stamp = metrics.stat().st_mtime_ns
    assert "pretraining epoch 1/20" in (run.folder / "log.txt").read_text()
    last = list(run.metrics())[-1]
    assert last["gm"]["test"]["mc"]["samples"] == 4 and last["gm"]["test"]["mean"]["accuracy"] > 0.2
    assert sum(client["weight"] for client in last["clients"]) == pytest.approx(1)
    found = json.loads((run.folder / "uncertainty.json").read_text())["ways"]["mc"]
    scores = {k: v for k, v in last["gm"]["test"]["mc"].items() if k != "samples"}
    assert found["scores"] == pytest.approx(scores)
    assert found["ood"]["num_out"] == 50
    page = (run.folder / "report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>") and "dwc" in page
    capfd.readouterr()
    assert main(command) == 0  # nothing is left to do but the comparison
    assert "accuracy %" in capfd.readouterr().out and metrics.stat().st_mtime_ns == stamp
    assert "dwc" in (run.folder.parent / "compare.html").read_text()


def test_a_run_that_diverges_names_round_client_and_reason_and_keeps_its_last_good_checkpoint(
    federation, tmp_path
):
    """Four clients that restart from the merged precision multiply it by four in every round.

    That is more than 50 in the third.
    """
    words = [
        "merge.rule=conflation",
        "client.start=posterior",
        "server.max_growth=50",
        "rounds=9",
        "evaluation.every=0",
        "clients_per_round=null",
        "data.clients=4",
    ]
    config = configuration(tmp_path, "demo", "fedivon", *words)
    launched = launch(federation, config, nodes=4)
    run = Run.open(launched.folder)
    assert [line for line in launched.lines if line.startswith("error: round 3: the run diverged")]
    assert launched.end.status is RunStatus.FAILED
    assert launched.end.text.startswith("round 3: the run diverged; the largest precision is")
    assert "of partition" in launched.end.text
    assert [saved.round for saved in run.checkpoints()] == [2]
    payload = run.load(run.checkpoints()[-1].path).payload
    assert payload.fault() is None
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["status"] == "failed" and "server.max_growth" in summary["detail"]
    assert (run.folder / "report.html").is_file()
