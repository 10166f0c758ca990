"""Trackers hear the numbers of every round, and never end a run."""

import logging
import os
import sys
import types
from pathlib import Path
from typing import ClassVar

import pytest

from fedivon_app import server_app
from fedivon_app.core.errors import SettingsError
from fedivon_app.runs.folder import Run
from fedivon_app.server import trackers as tracking
from fedivon_app.server.trackers import TRACKERS, Tracker, Trackers, check_trackers, numbers_of
from tests.golden import CLIENTS, SMALL, WORDS, InProcess, context_of
from tests.server.helpers import demo

OFFLINE = ["tensorboard", "mlflow", "wandb"]


class Heard(Tracker):
    """Remembers what it was told, in `told` of its class."""

    told: ClassVar[list] = []

    def __init__(self, run, done):
        self.told.append(("begin", run.settings.strategy, done))

    def round(self, number, values):
        self.told.append((number, dict(values)))

    def end(self, status):
        self.told.append(("end", status))


class Broken(Heard):
    def round(self, number, values):
        raise OSError("the service is away\nfor good")


@pytest.fixture
def module(monkeypatch):
    own = types.ModuleType("own_trackers")
    own.Heard = Heard
    own.Broken = Broken
    monkeypatch.setitem(sys.modules, "own_trackers", own)
    monkeypatch.setattr(Heard, "told", [])
    return Heard


def made(folder: Path, trackers: str, monkeypatch) -> Run:
    """Two real rounds, tracked."""
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    words = [*WORDS, *SMALL, "run.client_state=run", f"run.trackers=[{trackers}]"]
    config = {"experiment": "demo", "strategy": "fedivon", "runs": str(folder)}
    config["set"] = " ".join(f"'{word}'" for word in words)
    server_app.main(InProcess(CLIENTS), context_of(config))
    (place,) = [path for path in folder.iterdir() if (path / "settings.yaml").is_file()]
    return Run.open(place)


def test_every_round_is_told_and_a_broken_tracker_is_left_out(tmp_path, module, monkeypatch):
    warned = []
    monkeypatch.setattr(tracking.log, "warning", lambda text, *given: warned.append(text % given))
    run = made(tmp_path, '"own_trackers:Heard", "own_trackers:Broken"', monkeypatch)
    records = list(run.metrics())
    begun, other, *rounds, end = module.told
    assert begun == other == ("begin", "fedivon", 0) and end == ("end", "completed")
    assert [number for number, _ in rounds] == [1, 2]
    last = rounds[-1][1]
    assert last["gm/test/mc/nll"] == records[-1]["gm"]["test"]["mc"]["nll"]
    assert last["train_loss"] == records[-1]["train_loss"] and last["clients"] == 3
    assert (
        warned.count(
            "the tracker own_trackers:Broken fails, and the run goes on without it: "
            "the service is away"
        )
        == 1
    )


def test_numbers_are_those_of_the_whole_round():
    record = {
        "round": 3,
        "merged": True,
        "train_loss": 0.5,
        "gm": {"test": {"mean": {"nll": 1}}, "clients_before_training": {"by_client": [{"a": 1}]}},
        "precision": {"quantiles": 3},
        "clients": [{"loss": 1.0}, {"loss": 2.0}],
        "dropped": [{"partition": 1}],
    }
    assert numbers_of(record) == {
        "train_loss": 0.5,
        "gm/test/mean/nll": 1.0,
        "clients": 2.0,
        "dropped": 1.0,
    }


def test_what_is_missing_is_told_before_the_run(monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"wandb needs .* pip install 'fedivon\[wandb\]'"):
        check_trackers(["wandb"])
    with pytest.raises(SettingsError, match="no tracker 'tensorbord': did you mean tensorboard"):
        check_trackers(["tensorbord"])
    assert set(TRACKERS) == set(OFFLINE)


def test_a_run_that_fails_is_told_as_failed(tmp_path, module):
    run = Run.create(demo(f"run.folder={tmp_path}", "run.trackers=['own_trackers:Heard']"))
    with pytest.raises(RuntimeError), Trackers(run, done=4):
        raise RuntimeError("diverged")
    assert module.told == [("begin", "fedivon", 4), ("end", "failed")]


def test_tensorboard_reads_what_was_written(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = made(tmp_path, "tensorboard", monkeypatch)
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    told = [(one.step, one.value) for one in events.Scalars("gm/test/mc/accuracy")]
    wanted = [(r["round"], r["gm"]["test"]["mc"]["accuracy"]) for r in run.metrics()]
    assert told == [(step, pytest.approx(value)) for step, value in wanted]


def test_mlflow_reads_what_was_written(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = made(tmp_path, "mlflow", monkeypatch)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    name = (run.folder / "mlflow-run.txt").read_text().strip()
    history = client.get_metric_history(name, "gm/test/mc/accuracy")
    wanted = [(r["round"], r["gm"]["test"]["mc"]["accuracy"]) for r in run.metrics()]
    assert [(one.step, one.value) for one in history] == wanted
    found = client.get_run(name)
    assert found.info.status == "FINISHED" and found.data.params["strategy"] == "fedivon"
    with Trackers(run, done=1) as again:  # a run that is resumed goes on there too
        again.round({"round": 3, "train_loss": 0.25})
        again.ended("completed")
    assert (run.folder / "mlflow-run.txt").read_text().strip() == name
    assert client.get_metric_history(name, "train_loss")[-1].step == 3


def test_weights_and_biases_works_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run = made(tmp_path, "wandb", monkeypatch)
    (place,) = (run.folder / "wandb").glob("offline-run-*")
    (file,) = place.glob("*.wandb")
    written = file.read_bytes()
    assert b"gm/test/mc/accuracy" in written
    for record in run.metrics():
        assert repr(record["gm"]["test"]["mc"]["accuracy"]).encode() in written
    assert logging.getLogger("fedivon").level <= logging.INFO and "WANDB_MODE" not in os.environ
