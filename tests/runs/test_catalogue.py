"""Looking at runs without their methods."""

import json
import subprocess
import sys

import pytest
import yaml

from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of
from fedivon_app.runs.catalogue import look, runs_in
from fedivon_app.runs.folder import Run
from fedivon_app.runs.records import SUMMARISED
from fedivon_app.runs.status import RunStatus


@pytest.fixture
def run(tmp_path) -> Run:
    return Run.create(compose(settings_of, "demo", overrides=[f"run.folder={tmp_path}"]))


def test_looking_at_runs_imports_nothing_that_takes_long(run):
    program = (
        "import sys\n"
        "from fedivon_app.runs.catalogue import find\n"
        f"(found,) = find([{str(run.folder.parent)!r}])\n"
        "print(found.strategy, found.status, found.planned)\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'flwr', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["fedivon", "running", str(run.settings.rounds)], done.stderr


def test_the_run_is_opened_when_it_is_asked_for(run):
    found = look(run.folder)
    assert (found.experiment, found.strategy) == ("demo", "fedivon")
    assert found.planned == run.settings.rounds and found.rounds == 0 and found.readable
    assert found.run.settings == run.settings and found.run is found.run


def test_a_run_of_another_version_is_listed_and_not_opened(run):
    path = run.folder / "settings.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"former": 1}))
    found = look(run.folder)
    assert found.status is RunStatus.RUNNING and found.strategy == "fedivon"
    assert found.run is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("strategy: [", "settings.yaml is not valid YAML"),
        ("- 1", "settings.yaml must hold names and values, not [1]"),
        ("", "settings.yaml must hold names and values, not None"),
        ("rounds: 3", "settings.yaml names no strategy"),
        ("strategy: fedivon", "settings.yaml: rounds is None, not a number of rounds"),
        ("strategy: fedivon\nrounds: many", "settings.yaml: rounds is 'many'"),
    ],
)
def test_what_cannot_be_read_is_said(run, text, says):
    (run.folder / "settings.yaml").write_text(text)
    found = look(run.folder)
    assert found.status is RunStatus.UNREADABLE and says in found.detail
    assert not found.readable and found.run is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Expecting property name"),
        ("[]", "summary.json must hold names and values, not []"),
        ('{"rounds": 3}', "summary.json is damaged: it has no status"),
        (json.dumps(dict.fromkeys(SUMMARISED, 0) | {"status": "lost"}), "'lost' is not a valid"),
    ],
)
def test_a_summary_that_cannot_be_read_is_said(run, text, says):
    (run.folder / "summary.json").write_text(text)
    found = look(run.folder)
    assert found.status is RunStatus.UNREADABLE and says in found.detail


def test_how_a_run_ended_is_told(run):
    run.summarise(RunStatus.FAILED, "round 1: diverged")
    found = look(run.folder)
    assert found.status is RunStatus.FAILED and found.detail == "round 1: diverged"
    assert [one.folder for one in runs_in([run.folder, run.folder.parent])] == [run.folder] * 2
