"""The command line, used wrongly as a new user would: one clear line, a non-zero exit, no traceback."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.cli.main import _parser, main, table
from fedivon_app.cli.tables import uncertainty_table
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import compose
from fedivon_app.methods import settings_of
from fedivon_app.runs.catalogue import find, last_scores, look, runs_in
from fedivon_app.runs.folder import Run
from fedivon_app.server.setup import prepare


def write_npz(path, labels=None, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (40, 8, 8), np.uint8),
        "y_train": np.arange(40) % 10 if labels is None else labels,
        "x_test": rng.integers(0, 256, (20, 8, 8), np.uint8),
        "y_test": np.arange(20) % 10,
    }
    np.savez(path, **(arrays | changes))


NPZ = [
    "dataset=null",
    "data.source=npz",
    "data.partition=iid",
    "data.clients=2",
    "clients_per_round=2",
]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--strategy", "fedivom"], "there is no strategy 'fedivom': did you mean fedivon?"),
        (
            ["--set", "client.batchsize=3"],
            "there is no setting 'client.batchsize': did you mean batch_size?",
        ),
        (["--set", "rounds=few"], "rounds is 'few'"),
        (["--set", "client.ess=-1"], "client.ess is -1: Input should be greater than 0"),
        (["--set", "data.clients=0"], "data.clients is 0"),
        (["--set", "clients_per_round=21"], "clients_per_round is 21, but data.clients is 20"),
        (["--set", *NPZ, "data.path={tmp}/none.npz"], "none.npz"),
        (["--set", *NPZ, "data.path={tmp}/corrupt.npz"], "corrupt.npz"),
        (["--set", *NPZ, "data.path={tmp}/labels.npz", "data.num_classes=10"], "labels.npz"),
        (["--set", "model.name=lenett"], "lenett"),
        (["--set", "data.partition=shard"], "shards"),
        (["--set", "data.source=digit"], "digits"),
        (["--set", "model.options.sizes=wide"], "sizes"),
        (["--set", "data.clients=5000"], "5000 clients"),
    ],
)
def test_wrong_input_gives_one_clear_line(arguments, says, tmp_path, capsys):
    (tmp_path / "corrupt.npz").write_bytes(b"PK\x03\x04 this is no archive")
    write_npz(tmp_path / "labels.npz", labels=np.arange(40) % 13)
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    code = main(["run", "demo", "--runs", str(tmp_path / "runs"), *arguments])
    shown = capsys.readouterr()
    assert code == 2
    assert says in shown.err
    assert len(shown.err.splitlines()) == 1 and "Traceback" not in shown.err
    assert not (tmp_path / "runs").exists()


def test_unknown_experiment(capsys):
    assert main(["run", "dmeo"]) == 2
    assert "did you mean demo?" in capsys.readouterr().err


def test_settings_prints_what_a_run_would_use(capsys):
    assert main(["settings", "demo", "--strategy", "fedavg", "--set", "seed=7"]) == 0
    shown = capsys.readouterr().out
    assert "strategy: fedavg" in shown and "seed: 7" in shown and "optimizer: adam" in shown


def test_show_needs_a_finished_run(tmp_path, capsys):
    assert main(["show", str(tmp_path)]) == 2
    assert "has no summary.json" in capsys.readouterr().err


def test_table_has_a_line_for_each_way_of_predicting():
    scores = {"accuracy": 0.5, "nll": 1.25, "ece": 0.1, "brier": 0.6}
    gm = {"test": {"mean": scores, "mc": scores | {"nll": 1.0, "samples": 64}}}
    summary = {"experiment": "demo", "strategy": "fedivon", "seed": 0, "rounds": 9, "final": gm}
    lines = table([summary | {"best": {"round": 5, "score": 1, "gm": gm}}]).splitlines()
    assert len(lines) == 2 + 4
    assert "GM, 64 samples" in lines[3] and lines[3].split()[-4:] == [
        "50.00",
        "1.0000",
        "0.1000",
        "0.6000",
    ]
    assert "GM at the mean, best held-out" in lines[4]


COMMANDS = ["run", "resume", "sweep", "list", "show", "report", "compare", "uncertainty", "predict"]
COMMANDS += ["personalise", "clients", "illustrate", "keys", "sites", "deal", "doctor", "settings"]
SCORES = {"accuracy": 0.5, "nll": 1.25, "ece": 0.1, "brier": 0.6}


def make_run(folder, rounds=2, status="completed", detail="", name=None, of=4, seed=0, **scores):
    """A run's folder with this many rounds; no summary without a status."""
    run = Run.create(
        compose(settings_of, "demo", None, [f"run.folder={folder}", f"rounds={of}", f"seed={seed}"])
    )
    for server_round in range(1, rounds + 1):
        times = {"train": 60.0, "evaluate": 30.0, "clients": []}
        sent = {
            "bytes_up": 1,
            "bytes_down": 1,
            "dropped": [],
            "clients": [],
            "merged": True,
            "seconds": times,
        }
        run.append({"round": server_round} | sent | ({"gm": scores} if scores else {}))
    if status:
        run.summarise(status, detail)
    return Run.open(run.folder.rename(run.folder.with_name(name))) if name else run


def age(folder, seconds):
    """Makes the files of a folder as old as that."""
    for path in folder.rglob("*"):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def test_help_has_one_line_for_every_command(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^    ([a-z]+) +[A-Z].*\.$", capsys.readouterr().out, re.M)
    assert listed == COMMANDS


@pytest.mark.parametrize(
    "words", [["sweep", "demo"], ["predict", "RUN"], ["compare"], ["uncertainty"]]
)
def test_what_is_missing_is_said_by_the_parser(words, capsys):
    with pytest.raises(SystemExit) as stop:
        _parser().parse_args(words)
    assert stop.value.code == 2 and "required" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["--samples", "-1"], ["--confidence", "1.5"], ["--confidence", "nan"]]
)
def test_numbers_out_of_range_are_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        _parser().parse_args(["predict", "RUN", "FILE", *wrong])
    assert f"{wrong[1]!r} is not a" in capsys.readouterr().err


def test_list_shows_how_far_runs_are_newest_last(tmp_path, capsys):
    make_run(
        tmp_path, 3, "failed", "round 4: diverged", name="20260103-000000-c", test={"mean": SCORES}
    )
    mixed = {"mean": SCORES, "mc": SCORES | {"accuracy": 0.75, "samples": 8}}
    make_run(tmp_path / "sweep-demo", 4, name="20260102-000000-b", test=mixed)
    make_run(tmp_path, 1, "stopped", name="20260101-000000-a")
    age(make_run(tmp_path, 2, None, name="20260104-000000-d").folder, 3600)
    make_run(tmp_path, 0, None, name="20260105-000000-e")
    (tmp_path / "20260106-000000-f").mkdir()
    (tmp_path / "20260106-000000-f" / "settings.yaml").write_text("strategy: [")
    (tmp_path / "20260107-000000-g" / "checkpoint").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    assert main(["list", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[2:9]]
    assert [Path(row[0]).name[16:] if "-" in row[0] else row[0] for row in rows] == list("abcdefg")
    assert [row[2] for row in rows] == (
        ["stopped", "completed", "failed", "unfinished", "running", "unreadable", "unreadable"]
    )
    assert [row[3] for row in rows] == ["1/4", "4/4", "3/4", "2/4", "0/4", "-", "-"]
    assert (
        rows[1][4:] == ["75.00", "1.2500", "0.1000", "6", "min"]
        and rows[2][4] == "50.00"
        and rows[0][4] == "-"
    )
    assert "sweep-demo" in rows[1][0]
    assert lines[10].endswith("-c failed: round 4: diverged")
    assert "f unreadable:" in lines[11] and "is not valid YAML" in lines[11]
    assert "g unreadable:" in lines[12] and "it has no settings.yaml" in lines[12]
    assert len(lines) == 13


def test_list_without_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 0 and "no runs in ./runs" in capsys.readouterr().out
    assert (
        main(["list", "nowhere"]) == 2 and "there is no folder nowhere" in capsys.readouterr().err
    )
    make_run(tmp_path / "runs", name="mine")
    assert main(["list"]) == 0 and "runs/mine" in capsys.readouterr().out


def test_a_stopped_run_that_went_on_is_running(tmp_path):
    run = make_run(tmp_path, 2, "stopped")
    assert look(run.folder).status == "stopped"
    run.append(next(run.metrics()) | {"round": 3})
    assert look(run.folder).status == "running" and look(run.folder).rounds == 3


def test_scores_that_count_most():
    mean = SCORES
    mc = SCORES | {"samples": 4}
    assert last_scores({"holdout": {"mean": mean}, "test": {"mean": mean, "mc": mc}}) == mc
    assert last_scores({"holdout": {"mean": mean}}) == mean
    assert last_scores({"test": {}}) is None and last_scores(None) is None


def test_a_folder_of_runs_stands_for_those_inside(tmp_path):
    inside = [make_run(tmp_path / "sweep-demo", seed=seed).folder for seed in (0, 1)]
    alone = make_run(tmp_path / "other").folder
    assert [run.folder for run in runs_in([alone, tmp_path / "sweep-demo"])] == [
        alone,
        *sorted(inside),
    ]
    assert len(find([tmp_path, tmp_path / "sweep-demo", alone])) == 3  # none twice


def test_report_and_compare_write_pages(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = make_run(tmp_path / "sweep-demo", 4, test={"mean": SCORES})
    make_run(tmp_path / "sweep-demo", 4, seed=1, test={"mean": SCORES})
    assert main(["report", str(run.folder)]) == 0
    assert capsys.readouterr().out == f"{run.folder / 'report.html'}\n"
    assert main(["compare", "sweep-demo"]) == 0
    assert capsys.readouterr().out == "sweep-demo/compare.html\n"
    assert (
        main(["compare", str(run.folder), "sweep-demo", "--out", "here", "--names", "x", "y", "z"])
        == 0
    )
    assert capsys.readouterr().out == "here/compare.html\n"
    assert all(
        Path(page).is_file()
        for page in (run.folder / "report.html", "sweep-demo/compare.html", "here/compare.html")
    )
    assert main(["compare", "sweep-demo", "--names", "x", "y", "z"]) == 2
    assert "3 names for 2 runs" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["report", "empty"]) == 2
    assert (
        capsys.readouterr().err
        == "fedivon: empty is no run folder, and there is no readable run inside\n"
    )


def test_uncertainty_measures_and_writes_the_page(tmp_path, capsys):
    run = make_run(tmp_path, 4, test={"mean": SCORES})
    assert main(["uncertainty", str(run.folder)]) == 2
    assert f"{run.folder} has no checkpoint" in capsys.readouterr().err
    flat = prepare(run.settings)[0]
    run.save(4, Payload(Posterior(flat.mean(), np.full(len(flat), 50.0, np.float32))), {})
    assert main(["uncertainty", str(run.folder), "--samples", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[2:4]] == ["GM at the mean", "GM, 2 samples"]
    assert (
        lines[-1] == str(run.folder / "report.html") and (run.folder / "uncertainty.json").is_file()
    )


def test_the_table_of_uncertainty_has_the_detection_where_there_is_any():
    mean = {"samples": 0, "scores": SCORES, "ood": {"auroc": {"entropy": 0.875, "aleatoric": 0.75}}}
    mc = {
        "samples": 8,
        "scores": SCORES,
        "ood": {"auroc": {"entropy": 1.0, "aleatoric": 0.5, "epistemic": 0.25}},
    }
    lines = uncertainty_table({"ways": {"mc": mc, "mean": mean}}).splitlines()
    assert lines[2].split()[-3:] == ["0.8750", "0.7500", "-"]
    assert lines[3].split()[-3:] == ["1.0000", "0.5000", "0.2500"]
    assert "AUROC" not in uncertainty_table({"ways": {"mean": {"scores": SCORES}}})
