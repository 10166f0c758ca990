"""Run folders: what is written can be read again, whole or not at all."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import settings_of
from fedivon_app.runs.checkpoints import BestRound, Checkpoint
from fedivon_app.runs.folder import Run, named_folder, reserved_folder
from fedivon_app.runs.status import RunStatus


@pytest.fixture
def run(tmp_path) -> Run:
    return Run.create(compose(settings_of, "demo", overrides=[f"run.folder={tmp_path}"]))


def payload(value: float) -> Payload:
    posterior = Posterior(np.full(3, value), np.full(3, value + 1))
    return Payload(
        posterior, np.full(2, value, np.float32), {"control": np.full(3, -value, np.float32)}
    )


def checkpoint(server_round: int, **state: np.ndarray) -> Checkpoint:
    return Checkpoint(round=server_round, payload=payload(server_round), state=state)


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
        run.save(checkpoint(server_round, sum=np.full(3, server_round, np.float32)))
    assert [saved.round for saved in run.checkpoints()] == [2, 3]
    last = run.resume()
    assert last.round == 3
    loaded = last.payload
    expected = payload(3)
    np.testing.assert_array_equal(loaded.posterior.mean, expected.posterior.mean)
    np.testing.assert_array_equal(loaded.posterior.precision, expected.posterior.precision)
    np.testing.assert_array_equal(loaded.buffers, expected.buffers)
    np.testing.assert_array_equal(loaded.extras["control"], expected.extras["control"])
    np.testing.assert_array_equal(last.state["sum"], 3)


def test_a_checkpoint_that_was_not_finished_does_not_count(run):
    run.save(checkpoint(1))
    (run.folder / "checkpoint" / ".round-000002.partial").mkdir()
    assert run.resume().round == 1


def test_resuming_cuts_the_metrics_back_to_the_checkpoint(run):
    for server_round in (1, 2, 3):
        run.append(record(server_round))
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write('{"round": 4, "cut o')
    run.save(checkpoint(2))
    run.resume()
    assert [r["round"] for r in run.metrics()] == [1, 2]
    run.append(record(3))
    assert [r["round"] for r in run.metrics()] == [1, 2, 3]


def test_a_run_stopped_before_its_first_checkpoint_starts_again(run):
    run.append(record(1))
    assert run.resume() is None
    assert list(run.metrics()) == []


def test_the_best_checkpoint_is_replaced_by_a_better_one(run):
    run.save_best(checkpoint(1), 0.5)
    run.save_best(checkpoint(4), 0.3)
    assert run.best() == BestRound(round=4, score=0.3)
    assert json.loads((run.best_folder / "best.json").read_text()) == {"round": 4, "score": 0.3}
    best = run.load(run.folder / "checkpoint" / "best")
    assert best.round == 4
    np.testing.assert_array_equal(best.payload.posterior.mean, 4)


def test_the_summary_has_the_last_and_the_best_scores(run):
    for server_round in (1, 2, 3):
        run.append(record(server_round))
    run.save_best(checkpoint(2), 0.3)
    run.summarise(RunStatus.COMPLETED)
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["final"]["test"]["mean"]["accuracy"] == 0.3
    assert summary["best"]["gm"]["test"]["mean"]["accuracy"] == 0.2
    assert (summary["bytes_up"], summary["seconds"], summary["rounds"]) == (30, 4.5, 3)


def test_what_is_no_run_folder_is_said(tmp_path, run):
    with pytest.raises(SettingsError, match=r"is not a run folder: it has no settings.yaml"):
        Run.open(tmp_path / "nothing")
    (run.folder / "settings.yaml").write_text("strategy: fedivon\nrounds: many\n")
    with pytest.raises(SettingsError, match="settings.yaml: rounds is 'many'"):
        Run.open(run.folder)
    with pytest.raises(SettingsError, match="give an absolute path"):
        Run.create(compose(settings_of, "demo", overrides=["run.folder=here"]))
    (run.folder / "settings.yaml").write_text("rounds: 3\n")
    with pytest.raises(SettingsError, match="settings.yaml names no strategy"):
        Run.open(run.folder)
    (run.folder / "settings.yaml").write_text("strategy: fedivom\n")
    with pytest.raises(SettingsError, match="settings.yaml: there is no strategy 'fedivom'"):
        Run.open(run.folder)


def test_a_run_goes_to_the_folder_that_was_chosen_for_it(run, tmp_path):
    for folder in (reserved_folder(run.settings), tmp_path / "not" / "yet"):
        assert Run.open(Run.create(run.settings, folder=folder).folder).settings == run.settings
        with pytest.raises(
            SettingsError, match="is not empty: a new run needs a folder of its own"
        ):
            Run.create(run.settings, folder=folder)
    with pytest.raises(SettingsError, match="give an absolute path"):
        Run.create(run.settings, folder=Path("here"))


def test_a_folder_that_is_reserved_cannot_be_taken_by_another_run(run, tmp_path):
    folders = [reserved_folder(run.settings) for _ in range(3)]
    assert len(set(folders)) == 3 and all(folder.is_dir() for folder in folders)
    named = named_folder(run.settings)
    assert named.parent == tmp_path and named not in folders and not named.exists()
    assert re.fullmatch(r"\d{8}-\d{6}-demo-fedivon(-\d)?", named.name)


def test_the_home_in_a_folders_name_is_the_servers(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = compose(settings_of, "demo", overrides=["run.folder=~/there"])
    named = named_folder(settings)
    assert named.parent == Path("~/there")
    assert Run.create(settings, folder=named).folder == tmp_path / "there" / named.name


def test_a_strategy_by_import_path_has_a_folder_that_every_system_takes(run, tmp_path):
    settings = run.settings.model_copy(update={"strategy": "mypackage.method:METHOD"})
    assert reserved_folder(settings).name.endswith("-demo-mypackage.method-METHOD")


def test_a_folder_that_cannot_be_made_is_named(run, tmp_path):
    (tmp_path / "file").write_text("")
    settings = compose(settings_of, "demo", overrides=[f"run.folder={tmp_path}/file"])
    with pytest.raises(SettingsError, match="cannot write to .*/file"):
        Run.create(settings)
