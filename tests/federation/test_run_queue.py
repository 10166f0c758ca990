"""The queue of runs: which folder each of them is given, and what is told of it."""

from pathlib import Path

import pytest

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import FlowerError, SettingsError
from fedivon_app.federation import run_queue
from fedivon_app.federation.run_maker import RunEnd
from fedivon_app.federation.run_queue import Launch, Where, launch
from fedivon_app.methods import settings_of
from fedivon_app.runs.folder import Run
from fedivon_app.runs.status import RunStatus
from fedivon_app.runs.version import commit

DONE = RunEnd(RunStatus.COMPLETED)


class Pretended:
    """In place of a federation: `work` is what a run does with its config."""

    def __init__(self):
        self.configs = []
        self.work = lambda config: DONE

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def run(self, config, nodes, cpus, show):
        self.configs.append(config)
        return self.work(config)


@pytest.fixture
def federation(monkeypatch):
    pretended = Pretended()
    monkeypatch.setattr(run_queue, "Federation", lambda **options: pretended)
    monkeypatch.setattr(run_queue, "SuperLink", lambda address, ca, verbose: pretended)
    return pretended


@pytest.fixture
def new(tmp_path) -> Launch:
    settings = compose(settings_of, "demo", overrides=[f"run.folder={tmp_path / 'runs'}"])
    return Launch(settings=settings, config={"experiment": "demo"})


def test_a_new_run_is_told_its_folder_which_is_reserved_for_it(federation, new):
    def work(config):
        assert list(Path(config["folder"]).iterdir()) == []
        Run.create(new.settings, folder=Path(config["folder"]))
        return DONE

    federation.work = work
    outcomes = list(launch([new, new], Where()))
    folders = [outcome.folder for outcome in outcomes]
    assert [str(folder) for folder in folders] == [c["folder"] for c in federation.configs]
    assert len(set(folders)) == 2 and all(outcome.end is DONE for outcome in outcomes)
    assert [Run.open(folder).settings for folder in folders] == [new.settings] * 2


def test_a_run_that_never_wrote_anything_leaves_no_folder(federation, new, tmp_path):
    end = RunEnd(RunStatus.FAILED, "no node")
    federation.work = lambda config: end
    (outcome,) = launch([new], Where())
    assert outcome.folder is None and outcome.end is end

    def refused(config):
        raise FlowerError("the SuperLink is away")

    federation.work = refused
    with pytest.raises(FlowerError, match="is away"):
        list(launch([new], Where()))
    assert list((tmp_path / "runs").iterdir()) == []


def test_at_a_superlink_that_is_there_the_folder_is_the_servers(federation, new, tmp_path):
    (outcome,) = launch([new], Where(superlink="fl.example.org:8000"))
    assert outcome.folder == Path(federation.configs[0]["folder"])
    assert outcome.folder.parent == tmp_path / "runs" and not outcome.folder.parent.exists()


def test_a_run_that_goes_on_keeps_its_folder(federation, new):
    run = Run.create(new.settings)
    again = Launch(settings=new.settings, config={"resume": str(run.folder)})
    (outcome,) = launch([again], Where())
    assert federation.configs == [{"resume": str(run.folder), "commit": commit()}]
    assert outcome.folder == run.folder and run.folder.is_dir()


def test_a_folder_that_is_no_absolute_path_is_told_before_anything_runs(federation):
    settings = compose(settings_of, "demo", overrides=["run.folder=here"])
    with pytest.raises(SettingsError, match="give an absolute path"):
        list(launch([Launch(settings=settings, config={})], Where()))
    assert not federation.configs
