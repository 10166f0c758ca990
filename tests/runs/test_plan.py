"""Sweeps: what is to be run, what is left of it, and that it is run, by a pretended federation."""

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.cli.main import main
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.text import duration
from fedivon_app.federation import run_queue as series
from fedivon_app.federation.run_maker import RunEnd
from fedivon_app.methods import settings_of
from fedivon_app.runs.catalogue import find
from fedivon_app.runs.folder import Run
from fedivon_app.runs.plan import (
    folder_name,
    identity_of,
    left,
    next_steps,
    overview,
    plan_runs,
    read_grid,
    split_values,
    sweep_axes,
    unweighted_rules,
)
from fedivon_app.runs.status import RunStatus

SCORES = {"accuracy": 0.5, "nll": 1.25, "ece": 0.1, "brier": 0.6}
SMALL = ["rounds=3", "data.clients=4", "clients_per_round=2"]


def record(server_round, accuracy=0.5):
    return {
        "round": server_round,
        "bytes_up": 10,
        "bytes_down": 20,
        "dropped": [],
        "clients": [],
        "merged": True,
        "seconds": {"train": 1.0, "evaluate": 0.5, "clients": []},
        "gm": {"test": {"mean": SCORES | {"accuracy": accuracy}}},
    }


def make(config, rounds=None, status=None, detail=""):
    """A run as the server would have left it after these rounds; no summary without a status."""
    if "resume" in config:
        run = Run.open(config["resume"])
    else:
        composed = compose(settings_of, config["experiment"], config["strategy"], config["set"])
        folder = config.get("folder")
        run = Run.create(composed, folder=Path(folder) if folder else None)
    done = len(list(run.metrics()))
    for server_round in range(done + 1, (run.settings.rounds if rounds is None else rounds) + 1):
        run.append(record(server_round, 0.5 + run.settings.seed / 10))
    if status:
        run.summarise(status, detail)
    return run


def plans_of(tmp_path, *words, seeds=None, strategies=None):
    axes = sweep_axes(read_grid(words), strategies, seeds)
    return plan_runs("demo", axes, [*SMALL, f"run.folder={tmp_path}"])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("nwa,ws", ["nwa", "ws"]),
        ("1", ["1"]),
        ("[5,32],[1,2]", ["[5,32]", "[1,2]"]),
        ("{a: 1, b: [2,3]},{}", ["{a: 1, b: [2,3]}", "{}"]),
        ("\"a,b\",'c,]',d", ['"a,b"', "'c,]'", "d"]),
        (" a , b ", ["a", "b"]),
        ("a,,b", ["a", "", "b"]),
    ],
)
def test_values_are_cut_at_the_commas_outside_of_brackets_and_quotes(text, values):
    assert split_values(text) == values


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.one_of(st.integers(), st.lists(st.integers()), st.text("abc,[]", min_size=1)), min_size=1
    )
)
def test_what_is_joined_by_commas_comes_apart_again(values):
    texts = [json.dumps(value) for value in values]
    assert split_values(",".join(texts)) == texts


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["merge.rule"], "is not of the form name=value,value"),
        (["=1,2"], "is not of the form"),
        (["merge.rule=nwa,,ws"], "empty value"),
        (["merge.rule="], "empty value"),
        (["seed=1", "seed=2"], "seed is given twice"),
        (["run.folder=a,b"], "cannot vary run.folder"),
    ],
)
def test_a_wrong_grid_is_told(words, says):
    with pytest.raises(SettingsError, match=says):
        read_grid(words)


def test_seeds_and_strategies_are_axes_too():
    axes = sweep_axes({"client.epochs": ["1"]}, ["fedavg", "fedivon"], 2)
    assert axes == {"seed": ["0", "1"], "strategy": ["fedavg", "fedivon"], "client.epochs": ["1"]}
    with pytest.raises(SettingsError, match="seed is given twice"):
        sweep_axes({"seed": ["5"]}, None, 2)


def test_folder_names():
    assert (
        folder_name("demo", None) == "sweep-demo" and folder_name("demo", "b2") == "sweep-demo-b2"
    )
    with pytest.raises(SettingsError, match="folder"):
        folder_name("demo", "../b")


def test_every_combination_is_planned_with_seeds_changing_last(tmp_path):
    plans = plans_of(tmp_path, "client.epochs=1,2", "client.batch_size=8,16", seeds=2)
    told = [
        (p.settings.seed, p.settings.client.epochs, p.settings.client.batch_size) for p in plans
    ]
    assert told == [
        (seed, epochs, size) for seed in (0, 1) for epochs in (1, 2) for size in (8, 16)
    ]
    assert plans[-1].label == "client.epochs=2 client.batch_size=16 seed 1"


def test_the_run_config_of_a_plan_gives_its_settings(tmp_path):
    for plan in plans_of(
        tmp_path, "data.shard_sizes=[5,32],null", "client.epochs=1,2", strategies=["fedavg"]
    ):
        config = plan.config
        composed = compose(
            settings_of, config["experiment"], config["strategy"], shlex.split(config["set"])
        )
        assert composed == plan.settings
        assert plan.settings.run.folder == str(tmp_path)


def test_values_that_mean_the_same_run_once(tmp_path):
    assert len(plans_of(tmp_path, "client.learning_rate=0.1,1e-1,0.10")) == 1


def test_a_rule_that_ignores_the_weights_runs_once(tmp_path):
    grid = read_grid(["merge.rule=nwa,conflation", "merge.weighting=size,equal,distance"])
    plans = plan_runs("demo", grid, SMALL)
    assert [plan.label for plan in plans] == [
        "merge.rule=nwa merge.weighting=size",
        "merge.rule=nwa merge.weighting=equal",
        "merge.rule=nwa merge.weighting=distance",
        "merge.rule=conflation",
    ]
    assert unweighted_rules(grid, plans) == ["conflation"]
    assert unweighted_rules({"merge.rule": ["conflation"]}, plans) == []


def test_identity_leaves_out_the_folder_and_an_ignored_weighting_only(tmp_path):
    def identity(*words):
        return identity_of(plan_runs("demo", {}, [*SMALL, *words])[0].settings)

    assert identity("run.folder=/a") == identity("run.folder=/b")
    assert identity("seed=1") != identity("seed=2")
    assert identity("run.checkpoint_every=1") != identity("run.checkpoint_every=2")
    assert identity("merge.rule=nwa", "merge.weighting=size") != identity(
        "merge.rule=nwa", "merge.weighting=equal"
    )
    ignored = [
        identity("merge.rule=conflation", f"merge.weighting={name}") for name in ("size", "equal")
    ]
    assert ignored[0] == ignored[1]


def test_what_is_left_to_do(tmp_path):
    plans = plans_of(tmp_path, "seed=0,1,2,3,4")
    make(plans[0].config, status="completed")
    make(plans[1].config, rounds=2, status="stopped")
    interrupted = make(plans[2].config, rounds=1)
    make(plans[3].config, rounds=1, status="failed", detail="round 2: diverged")
    steps = next_steps(plans, find([tmp_path]))
    assert [step.action for step in steps] == ["keep", "resume", "resume", "keep", "start"]
    assert steps[2].config == {"resume": str(interrupted.folder)}
    assert steps[4].config == plans[4].config
    assert steps[3].found.status == "failed" and steps[3].found.detail == "round 2: diverged"
    again = next_steps(plans, find([tmp_path]), again_failed=True)
    assert again[3].action == "start"
    assert overview(steps) == (
        "5 runs: 1 completed before, 2 to go on with, "
        "1 failed before (--again-failed runs them again)"
    )
    assert overview(steps[4:]) == "1 run"


def test_of_equal_runs_the_completed_one_counts_then_the_newest(tmp_path):
    (plan,) = plans_of(tmp_path, "seed=7")
    first = make(plan.config, status="completed")
    make(plan.config, rounds=1)
    make(plan.config, rounds=1, status="failed")
    assert next_steps([plan], find([tmp_path]))[0].found.folder == first.folder
    newest = make(plan.config, status="completed")
    assert next_steps([plan], find([tmp_path]))[0].found.folder == newest.folder


def test_a_run_with_other_settings_is_not_taken_for_the_same(tmp_path):
    make(plans_of(tmp_path, "client.epochs=1")[0].config, status="completed")
    assert next_steps(plans_of(tmp_path, "client.epochs=2"), find([tmp_path]))[0].action == "start"


def test_times():
    assert [duration(s) for s in (0.4, 99, 100, 3000, 11100)] == [
        "0 s",
        "99 s",
        "2 min",
        "50 min",
        "3 h 05 min",
    ]
    assert left([10, 20], 4) == 60 and left([], 4) is None


class Pretended:
    """In place of a Federation: makes runs' folders as the server would; those in `fails` fail."""

    started = 0
    calls: tuple = ()
    fails: dict = {}  # noqa: RUF012 - set anew for every test

    def __init__(self):
        type(self).started += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def run(self, config, nodes, cpus, show):
        number = len(self.calls)
        type(self).calls = (*self.calls, config)
        failure = self.fails.get(number)
        if failure is KeyboardInterrupt:
            make(config, rounds=1)
            raise KeyboardInterrupt
        make(
            config,
            rounds=1 if failure else None,
            status="failed" if failure else "completed",
            detail=failure or "",
        )
        show("round 1/3  train loss 1")
        show("round 3/3  train loss 0")
        return RunEnd(RunStatus.FAILED if failure else RunStatus.COMPLETED, failure or "")


@pytest.fixture
def federation(monkeypatch):
    """The pretended one, and a page that is written fast: the folders of the runs in it."""

    def write_comparison(runs, folder):
        (folder / "compare.html").write_text("\n".join(str(run.folder) for run in runs))
        return folder / "compare.html"

    monkeypatch.setattr("fedivon_app.cli.commands.sweep.write_comparison", write_comparison)
    monkeypatch.setattr(series.Where, "federation", lambda where: Pretended())
    Pretended.started = 0
    Pretended.calls = ()
    Pretended.fails = {}
    return Pretended


def sweep(tmp_path, *words):
    return main(["sweep", "demo", *words, "--runs", str(tmp_path), "--set", *SMALL])


def test_a_sweep_ends_in_a_table_and_a_page(federation, tmp_path, capsys):
    assert sweep(tmp_path, "client.epochs=1,2", "--seeds", "2") == 0
    shown = capsys.readouterr().out
    assert federation.started == 1 and len(federation.calls) == 4
    assert "1/4 client.epochs=1 seed 0 ..." in shown and "4/4 client.epochs=2 seed 1 ... (" in shown
    assert "round 3/3" in shown and "round 1/3" not in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("2 ")]
    assert line.split()[:6] == ["2", "2", "GM", "at", "the", "mean"]
    assert "55.00 ± 7.07" in line and "1.250 ± 0.000" in line  # 50 and 60: sd = 10 / sqrt 2
    page = tmp_path / "sweep-demo" / "compare.html"
    assert (
        shown.splitlines()[-1] == f"comparison: {page}" and len(page.read_text().splitlines()) == 4
    )


def test_the_same_command_goes_on_where_it_stopped(federation, tmp_path, capsys):
    federation.fails = {1: KeyboardInterrupt}
    assert sweep(tmp_path, "client.epochs=1,2,3") == 130
    assert "go on with: fedivon sweep demo client.epochs=1,2,3 --runs" in capsys.readouterr().err
    federation.calls = ()
    federation.fails = {}
    assert sweep(tmp_path, "client.epochs=1,2,3") == 0
    shown = capsys.readouterr().out
    assert "3 runs: 1 completed before, 1 to go on with" in shown
    assert [list(config) for config in federation.calls] == [
        ["resume", "commit"],
        ["experiment", "strategy", "set", "folder", "commit"],
    ]
    assert "2/3 client.epochs=2, going on ..." in shown
    assert len(find([tmp_path])) == 3
    federation.calls = ()
    federation.started = 0
    assert sweep(tmp_path, "client.epochs=1,2,3") == 0
    assert federation.started == 0  # nothing is left, so Flower is not started


def test_a_run_that_fails_does_not_stop_the_others(federation, tmp_path, capsys):
    federation.fails = {0: "round 2: the posterior diverged"}
    assert sweep(tmp_path, "client.epochs=1,2") == 1
    shown = capsys.readouterr()
    assert "fedivon: 1/2 client.epochs=1 failed: round 2: the posterior diverged" in shown.err
    assert "client.epochs=1 failed: round 2: the posterior diverged" in shown.out
    assert len(federation.calls) == 2
    federation.calls = ()
    federation.fails = {}
    assert sweep(tmp_path, "client.epochs=1,2") == 1
    assert not federation.calls and "1 failed before" in capsys.readouterr().out
    assert sweep(tmp_path, "client.epochs=1,2", "--again-failed") == 0
    assert len(federation.calls) == 1
    page = tmp_path / "sweep-demo" / "compare.html"
    assert (
        len(page.read_text().splitlines()) == 2
    )  # the run that failed first is not compared any more


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["merge.rule=nwa,wss"], "merge.rule=wss: the command line: merge.rule is 'wss'"),
        (["client.epochz=1,2"], "there is no setting 'client.epochz': did you mean epochs?"),
        (["data.clients=4,5000"], "data.clients=5000: 5000 clients"),
        (["model.name=mlp,lenett"], "model.name=lenett: model: there is no model 'lenett'"),
        (["data.standardise=false,true"], "data.standardise=true: data.standardise is for tables"),
        (["seed=1", "--seeds", "2"], "seed is given twice"),
        (["seed=1", "--name", "a/b"], "folder"),
        (["seed=1", "--strategy", "fedavg", "fedivom"], "there is no strategy 'fedivom'"),
    ],
)
def test_a_wrong_combination_is_told_before_anything_runs(
    federation, tmp_path, capsys, words, says
):
    assert sweep(tmp_path, *words) == 2
    error = capsys.readouterr().err
    assert says in error and len(error.splitlines()) == 1
    assert federation.started == 0 and not list(tmp_path.iterdir())


def test_two_sweeps_do_not_share_a_folder(federation, tmp_path, capsys):
    with series.alone_in(tmp_path / "sweep-demo"):
        assert sweep(tmp_path, "client.epochs=1") == 2
    assert "another fedivon command is making runs in" in capsys.readouterr().err
    assert sweep(tmp_path, "client.epochs=1") == 0


def test_run_and_resume_go_the_same_way(federation, tmp_path, capsys):
    assert main(["run", "demo", "--seed", "3", "4", "--runs", str(tmp_path), "--set", *SMALL]) == 0
    folders = [found.folder for found in find([tmp_path])]
    assert [Run.open(folder).settings.seed for folder in folders] == [3, 4]
    shown = capsys.readouterr().out
    assert "run 1 of 2: starting fedivon, seed 3 on 4 simulated clients" in shown
    assert (
        "3 rounds, 2 of 4 clients in each, about 1.09 MB a round" in shown and "round 1/3" in shown
    )
    assert all(f"\n  {folder}\n" in shown for folder in folders)
    federation.fails = {2: "a reason"}
    (folders[0] / "summary.json").unlink()  # as if it had been stopped before its first checkpoint
    assert main(["resume", str(folders[0])]) == 1
    assert federation.calls[-1]["resume"] == str(folders[0])
    assert "fedivon: fedivon failed: a reason" in capsys.readouterr().err


def test_a_file_of_the_working_folder_is_named_by_its_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.npz").write_bytes(b"")
    words = [*SMALL, "data.source=npz", "data.path=mine.npz"]
    words += ["evaluation.ood=npz", "evaluation.ood_path=below-the-root.npz"]
    (plan,) = plan_runs("demo", {}, words)
    assert plan.settings.data.path == str(tmp_path / "mine.npz")
    assert plan.settings.evaluation.ood_path == "below-the-root.npz"
    again = compose(settings_of, "demo", overrides=plan.config["set"])
    assert again.data.path == plan.settings.data.path
    (remote,) = plan_runs("demo", {}, words, remote=True)
    assert remote.settings.data.path == "mine.npz"
