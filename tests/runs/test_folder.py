"""Run folders: what is written can be read again, whole or not at all."""

import json

import numpy as np
import pytest

from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import SettingsError, compose
from fedivon_app.methods import settings_of
from fedivon_app.runs.folder import Run


@pytest.fixture
def run(tmp_path) -> Run:
    return Run.create(compose(settings_of, "demo", overrides=[f"run.folder={tmp_path}"]))


def payload(value: float) -> Payload:
    posterior = Posterior(np.full(3, value), np.full(3, value + 1))
    return Payload(
        posterior, np.full(2, value, np.float32), {"control": np.full(3, -value, np.float32)}
    )


def record(server_round: int) -> dict:
    return {
        "round": server_round,
        "bytes_up": 10,
        "bytes_down": 20,
        "dropped": [],
        "seconds": {"train": 1.0, "evaluate": 0.5},
        "gm": {"test": {"mean": {"accuracy": server_round / 10}}},
    }


def test_settings_come_back_as_they_were(run):
    assert Run.open(run.folder).settings == run.settings


def test_two_runs_of_one_second_have_folders_of_their_own(run):
    assert Run.create(run.settings).folder != run.folder


def test_checkpoints_come_back_and_only_the_last_two_are_kept(run):
    for server_round in (1, 2, 3):
        run.save(server_round, payload(server_round), {"sum": np.full(3, server_round, np.float32)})
    assert [number for number, _ in run.checkpoints()] == [2, 3]
    number, loaded, state = run.resume()
    assert number == 3
    expected = payload(3)
    np.testing.assert_array_equal(loaded.posterior.mean, expected.posterior.mean)
    np.testing.assert_array_equal(loaded.posterior.precision, expected.posterior.precision)
    np.testing.assert_array_equal(loaded.buffers, expected.buffers)
    np.testing.assert_array_equal(loaded.extras["control"], expected.extras["control"])
    np.testing.assert_array_equal(state["sum"], 3)


def test_a_checkpoint_that_was_not_finished_does_not_count(run):
    run.save(1, payload(1), {})
    (run.folder / "checkpoint" / ".round-000002.partial").mkdir()
    assert run.resume()[0] == 1


def test_resuming_cuts_the_metrics_back_to_the_checkpoint(run):
    for server_round in (1, 2, 3):
        run.append(record(server_round))
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write('{"round": 4, "cut o')
    run.save(2, payload(2), {})
    run.resume()
    assert [r["round"] for r in run.metrics()] == [1, 2]
    run.append(record(3))
    assert [r["round"] for r in run.metrics()] == [1, 2, 3]


def test_a_run_stopped_before_its_first_checkpoint_starts_again(run):
    run.append(record(1))
    assert run.resume() is None
    assert list(run.metrics()) == []


def test_the_best_checkpoint_is_replaced_by_a_better_one(run):
    run.save_best(1, payload(1), {}, 0.5)
    run.save_best(4, payload(4), {}, 0.3)
    assert run.best() == {"round": 4, "score": 0.3}
    best, _ = run.load(run.folder / "checkpoint" / "best")
    np.testing.assert_array_equal(best.posterior.mean, 4)


def test_the_summary_has_the_last_and_the_best_scores(run):
    for server_round in (1, 2, 3):
        run.append(record(server_round))
    run.save_best(2, payload(2), {}, 0.3)
    run.summarise("completed")
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["final"]["test"]["mean"]["accuracy"] == 0.3
    assert summary["best"]["gm"]["test"]["mean"]["accuracy"] == 0.2
    assert (summary["bytes_up"], summary["seconds"], summary["rounds"]) == (30, 4.5, 3)


def test_what_is_no_run_folder_is_said(tmp_path, run):
    with pytest.raises(SettingsError, match=r"is no run folder: it has no settings.yaml"):
        Run.open(tmp_path / "nothing")
    (run.folder / "settings.yaml").write_text("strategy: fedivon\nrounds: many\n")
    with pytest.raises(SettingsError, match="settings.yaml: rounds is 'many'"):
        Run.open(run.folder)
    with pytest.raises(SettingsError, match="give an absolute path"):
        Run.create(compose(settings_of, "demo", overrides=["run.folder=here"]))
