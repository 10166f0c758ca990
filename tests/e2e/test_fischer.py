"""Real `flwr run`s of Gaussian networks under Fischer et al.'s rules, a run that diverges, and a sweep that goes on."""

import json

import numpy as np
import pytest

from fedivon_app.cli import main
from fedivon_app.runs import Run
from tests.e2e import helpers
from tests.e2e.helpers import configuration

pytestmark = pytest.mark.e2e


def launch(federation, runs, experiment, strategy, *overrides, nodes=4):
    config = configuration(runs, experiment, strategy, f"data.clients={nodes}", *overrides)
    failure, folder, lines = helpers.launch(federation, config, nodes)
    return failure, Run.open(folder), lines


def test_a_pretrained_flipout_run_ends_with_its_uncertainty_and_its_report(federation, tmp_path):
    noise = tmp_path / "noise.npz"
    rng = np.random.default_rng(0)
    pictures, labels = rng.integers(0, 256, (50, 10, 10, 3), np.uint8), np.arange(50) % 2
    np.savez(noise, x_train=pictures, y_train=labels, x_test=pictures, y_test=labels)
    words = ["merge.rule=dwc", "merge.weighting=max-discrepancy", "rounds=2", "pretraining.fraction=0.4"]
    words += ["pretraining.epochs=20", "evaluation.final_samples=4", "evaluation.every=0", "client.prior=global"]
    words += ["evaluation.ood=npz", f"evaluation.ood_path={noise}", "model.options={sizes: 32}"]
    failure, run, lines = launch(federation, tmp_path / "runs", "digits-fischer", "flipout", *words)
    assert failure is None, failure
    assert [line for line in lines if line.startswith("pretraining epoch 1/20")]
    last = list(run.metrics())[-1]
    assert last["gm"]["test"]["mc"]["samples"] == 4 and last["gm"]["test"]["mean"]["accuracy"] > 0.2
    assert sum(client["weight"] for client in last["clients"]) == pytest.approx(1)
    found = json.loads((run.folder / "uncertainty.json").read_text())["ways"]["mc"]
    assert found["scores"] == pytest.approx({k: v for k, v in last["gm"]["test"]["mc"].items() if k != "samples"})
    assert found["ood"]["num_out"] == 50
    page = (run.folder / "report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>") and "dwc" in page


def test_a_run_that_diverges_names_round_client_and_reason_and_keeps_its_last_good_checkpoint(federation, tmp_path):
    """Four clients that restart from the merged precision multiply it by four in every round: over 50 in the third."""
    words = ["merge.rule=conflation", "client.start=posterior", "server.max_growth=50", "rounds=9"]
    words += ["evaluation.every=0", "clients_per_round=null"]
    failure, run, _ = launch(federation, tmp_path, "demo", "fedivon", *words)
    assert "round 3: the run diverged; the largest precision is" in failure and "of partition" in failure
    assert [number for number, _ in run.checkpoints()] == [2]
    payload, _ = run.load(run.checkpoints()[-1][1])
    assert payload.fault() is None
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["status"] == "failed" and "server.max_growth" in summary["detail"]
    assert (run.folder / "report.html").is_file()


def test_a_sweep_compares_and_goes_on_with_what_is_left(tmp_path, capfd):
    small = ["--runs", str(tmp_path), "--set", "data.clients=3", "rounds=2", "evaluation.final_samples=3"]
    small += ["evaluation.every=0", "evaluation.clients_every=0", "model.options={sizes: 16}"]
    assert main(["sweep", "digits-fischer", "merge.rule=conflation", *small]) == 0
    folder = tmp_path / "sweep-digits-fischer"
    (first,) = folder.glob("*/metrics.jsonl")
    stamp = first.stat().st_mtime_ns
    capfd.readouterr()
    assert main(["sweep", "digits-fischer", "merge.rule=conflation,wc", *small]) == 0
    shown = capfd.readouterr().out
    assert len(list(folder.glob("*/metrics.jsonl"))) == 2 and first.stat().st_mtime_ns == stamp
    assert "conflation" in shown and "wc" in shown and "accuracy %" in shown
    page = (folder / "compare.html").read_text()
    assert "conflation" in page and "wc" in page
