"""The ServerApp: which run it opens, how the run goes, and what is left of one that fails."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, MetricRecord

from fedivon_app import server_app
from fedivon_app.core.errors import RunError, SettingsError
from fedivon_app.methods import method
from fedivon_app.report.pages import write_report
from fedivon_app.runs.folder import Run
from fedivon_app.server.begin_or_resume import Opened, open_run
from fedivon_app.server_app import do_rounds, main
from tests.golden import InProcess
from tests.server.helpers import demo
from tests.strategies.nodes import Nodes, arrays_of

SMALL = [
    "data.clients=2",
    "clients_per_round=2",
    "rounds=2",
    "evaluation.every=0",
    "evaluation.clients_every=0",
    "evaluation.final_samples=2",
]
OWN = {"shape": [8, 8, 1], "num-classes": 10}
METRICS = {"num-examples": 10, "loss": 0.5, "seconds": 0.1}


@pytest.fixture(autouse=True)
def drawn(monkeypatch) -> list[Path]:
    """The runs of which a page was asked for; drawing it would take longer than all the rest."""
    folders: list[Path] = []
    monkeypatch.setattr(server_app, "write_report", lambda run: folders.append(run.folder))
    return folders


def echo(partition: int, message: Message) -> dict[str, Any]:
    """Send back what came, as a client that learns nothing."""
    return {"posterior": message.content["posterior"], "metrics": MetricRecord(METRICS)}


def silence(partition: int, message: Message) -> None:
    return None


def two_nodes(reply=echo) -> Nodes:
    return Nodes(2, reply, properties={0: OWN, 1: OWN})


def run_config(runs: Path, *overrides: str, **more: str) -> dict[str, str]:
    words = shlex.join([*SMALL, *overrides])
    return {"experiment": "demo", "runs": str(runs), "set": words, **more}


def start(config: dict[str, str], nodes: Nodes) -> None:
    main(nodes, SimpleNamespace(run_config=config))


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def failing(error: Exception):
    def merge(self, round):
        raise error

    return merge


def test_a_run_leaves_a_folder_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(server_app, "write_report", write_report)
    start(run_config(tmp_path), two_nodes())
    (folder,) = tmp_path.iterdir()
    run = Run.open(folder)
    assert summary_of(folder)["status"] == "completed"
    assert summary_of(folder)["detail"].startswith("hardly better than guessing")
    assert [record["merged"] for record in run.metrics()] == [True, True]
    assert [saved.round for saved in run.checkpoints()] == [2]
    known = json.loads((folder / "model.json").read_text())
    assert known == {"shape": [8, 8, 1], "num_classes": 10, "class_names": None}
    assert json.loads((folder / "uncertainty.json").read_text())["round"] == 2
    assert (folder / "report.html").is_file()
    assert "completed after round 2" in (folder / "log.txt").read_text()


def test_the_folder_of_the_run_config_is_the_runs(tmp_path):
    chosen = tmp_path / "chosen" / "mine"
    start(run_config(tmp_path / "runs", folder=str(chosen)), two_nodes())
    assert summary_of(chosen)["status"] == "completed"
    assert (chosen / "log.txt").is_file() and Run.open(chosen).checkpoints()
    assert not (tmp_path / "runs").exists()


def test_without_a_folder_in_the_run_config_the_run_takes_a_new_one(tmp_path):
    config = run_config(tmp_path / "runs")
    for same in (config, config | {"folder": ""}):
        opened = open_run(same, two_nodes())
        assert opened.run.folder.parent == tmp_path / "runs" and opened.checkpoint is None
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_folder_that_cannot_be_the_runs_is_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("mine")
    config = run_config(tmp_path / "runs", folder=str(tmp_path / "full"))
    with pytest.raises(SettingsError, match="is not empty: a new run needs a folder of its own"):
        open_run(config, two_nodes())
    with pytest.raises(RunError, match="is not empty: a new run needs a folder of its own"):
        start(config, two_nodes())
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["precious.txt"]
    with pytest.raises(SettingsError, match="give an absolute path"):
        open_run(config | {"folder": "here"}, two_nodes())
    with pytest.raises(SettingsError, match="the key `runs`.*: the two mean the same"):
        open_run(run_config(tmp_path, f"run.folder={tmp_path / 'other'}"), two_nodes())


def test_where_the_settings_do_not_say_the_nodes_are_counted(tmp_path):
    opened = open_run(run_config(tmp_path, "data.clients=null"), Nodes(5, silence))
    assert opened.run.settings.data.clients == 5
    assert Run.open(opened.run.folder).settings.data.clients == 5


class Late(InProcess):
    """A federation of real clients, of whom the third joins when the others have been counted."""

    looks = 0

    def get_node_ids(self) -> list[int]:
        self.looks += 1
        return super().get_node_ids()[: 2 if self.looks <= 2 else 3]


def test_a_node_that_joins_after_the_count_does_not_end_the_run(tmp_path):
    config = {"experiment": "quickstart", "runs": str(tmp_path), "set": "rounds=1"}
    start(config, Late(3))
    (folder,) = tmp_path.iterdir()
    run = Run.open(folder)
    assert summary_of(folder)["status"] == "completed" and run.settings.data.clients == 2
    (record,) = run.metrics()
    assert [client["partition"] for client in record["clients"]] == [0, 1]
    log = (folder / "log.txt").read_text()
    assert "the node's partition-id is 2, but data.clients is 2" in log
    assert "the run begins without node 114, for its 2 clients are there" in log


def test_a_run_that_was_stopped_goes_on_after_its_checkpoint(tmp_path):
    start(run_config(tmp_path, "run.stop_after=1"), two_nodes())
    (folder,) = tmp_path.iterdir()
    assert summary_of(folder)["status"] == "stopped" and summary_of(folder)["rounds"] == 1
    opened = open_run({"resume": str(folder)}, two_nodes())
    assert opened.run.folder == folder and opened.checkpoint.round == 1
    start({"resume": str(folder)}, two_nodes())
    assert summary_of(folder)["status"] == "completed"
    assert [record["round"] for record in Run.open(folder).metrics()] == [1, 2]
    assert "resumed after round 1" in (folder / "log.txt").read_text()


def test_a_run_that_merged_nothing_has_failed(tmp_path):
    words = [*SMALL, "server.round_timeout=0.05", f"run.folder={tmp_path}"]
    run = Run.create(demo(*words))
    with pytest.raises(
        RunError,
        match="in 2 rounds there were never enough good replies to merge: nothing was learned",
    ):
        do_rounds(two_nodes(silence), Opened(run))
    assert [record["merged"] for record in run.metrics()] == [False, False]


def test_a_failing_run_says_why_in_one_line(tmp_path):
    config = {"experiment": "demo", "runs": str(tmp_path), "set": "data.partition=dirichlett"}
    with pytest.raises(RunError, match="^there is no partition rule 'dirichlett'"):
        start(config, Nodes(20, silence))
    (folder,) = tmp_path.iterdir()
    assert (folder / "log.txt").read_text().count("error: there is no partition rule") == 1
    summary = summary_of(folder)
    assert summary["status"] == "failed"
    assert summary["detail"].startswith("there is no partition rule")


def test_a_mistake_of_the_settings_is_told_in_its_own_words(tmp_path, monkeypatch, drawn):
    """The person who reads it needs no traceback, and is shown none."""
    text = "merge.weighting is 'sizes', which is no weighting"
    monkeypatch.setattr(method("fedivon").strategy, "merge", failing(SettingsError(text)))
    with pytest.raises(RunError) as raised:
        start(run_config(tmp_path), two_nodes())
    assert type(raised.value) is RunError and str(raised.value) == text
    assert raised.value.__suppress_context__ and raised.value.__cause__ is None
    (folder,) = tmp_path.iterdir()
    summary = summary_of(folder)
    assert (summary["status"], summary["detail"]) == ("failed", text)
    assert (folder / "log.txt").read_text().count(f"error: {text}\n") == 1
    assert drawn == [folder]


@pytest.mark.parametrize("bug", [KeyError("precison"), ValueError("operands of two shapes")])
def test_a_bug_marks_the_run_failed_and_is_raised_as_it_is(tmp_path, monkeypatch, drawn, bug):
    """Its traceback, which leads to it, is Flower's to show; the folder names it."""
    monkeypatch.setattr(method("fedivon").strategy, "merge", failing(bug))
    with pytest.raises(type(bug)) as raised:
        start(run_config(tmp_path), two_nodes())
    assert raised.value is bug and "merge" in [entry.name for entry in raised.traceback]
    (folder,) = tmp_path.iterdir()
    summary = summary_of(folder)
    detail = f"{type(bug).__name__}: {bug}"
    assert (summary["status"], summary["detail"]) == ("failed", detail)
    assert (folder / "log.txt").read_text().count(f"error: {detail}\n") == 1
    assert drawn == [folder]


def test_a_run_that_diverges_keeps_its_last_good_round(tmp_path):
    def mad_in_round_2(partition: int, message: Message) -> dict[str, Any]:
        reply = echo(partition, message)
        if message.content["config"]["round"] == 2:
            arrays = {name: array.numpy() for name, array in reply["posterior"].items()}
            arrays["mean"] = np.full_like(arrays["mean"], np.nan)
            reply["posterior"] = arrays_of(**arrays)
        return reply

    with pytest.raises(RunError, match="round 2: the run diverged; no reply is finite"):
        start(run_config(tmp_path, "rounds=3"), two_nodes(mad_in_round_2))
    (folder,) = tmp_path.iterdir()
    run = Run.open(folder)
    assert summary_of(folder)["status"] == "failed" and summary_of(folder)["rounds"] == 1
    assert [saved.round for saved in run.checkpoints()] == [1]
    assert run.load(run.checkpoints()[-1].path).payload.fault() is None


def test_a_page_that_cannot_be_drawn_costs_the_run_nothing(tmp_path, monkeypatch):
    def broken(run: Run) -> None:
        raise OSError("no space for pictures")

    monkeypatch.setattr(server_app, "write_report", broken)
    start(run_config(tmp_path), two_nodes())
    (folder,) = tmp_path.iterdir()
    assert summary_of(folder)["status"] == "completed"
    assert "no report: no space for pictures" in (folder / "log.txt").read_text()
