"""`fedivon list`: how far the runs are that folders hold."""

from pathlib import Path

from fedivon_app.cli.main import main
from fedivon_app.runs.catalogue import find, last_scores, look, runs_in
from fedivon_app.runs.status import RunStatus
from tests.cli.helpers import SCORES, age, make_run


def test_list_shows_how_far_runs_are_newest_last(tmp_path, capsys):
    make_run(
        tmp_path,
        rounds=3,
        status=RunStatus.FAILED,
        detail="round 4: diverged",
        name="20260103-000000-c",
        test={"mean": SCORES},
    )
    mixed = {"mean": SCORES, "mc": SCORES | {"accuracy": 0.75, "samples": 8}}
    make_run(tmp_path / "sweep-demo", 4, name="20260102-000000-b", test=mixed)
    make_run(tmp_path, 1, RunStatus.STOPPED, name="20260101-000000-a")
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
    assert [row[4] for row in rows] == (
        ["stopped", "completed", "failed", "unfinished", "running", "unreadable", "unreadable"]
    )
    assert rows[0][1:4] == ["fedivon", "digits", "mlp"] and rows[6][1:4] == ["-", "-", "-"]
    assert [row[5] for row in rows] == ["1/4", "4/4", "3/4", "2/4", "0/4", "-", "-"]
    assert rows[1][6:] == ["75.00", "1.2500", "0.1000", "6", "min"]
    assert rows[2][6] == "50.00" and rows[0][6] == "-"
    assert "sweep-demo" in rows[1][0]
    assert lines[10].endswith("-c failed: round 4: diverged")
    assert "f unreadable:" in lines[11] and "is not valid YAML" in lines[11]
    assert "g unreadable:" in lines[12] and "it has no settings.yaml" in lines[12]
    assert len(lines) == 13


def test_list_without_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 0 and "no runs in runs" in capsys.readouterr().out
    assert main(["list", "nowhere"]) == 2
    assert f"there is no folder {tmp_path / 'nowhere'}" in capsys.readouterr().err
    make_run(tmp_path / "runs", name="mine")
    assert main(["list"]) == 0 and "runs/mine" in capsys.readouterr().out


def test_a_stopped_run_that_went_on_is_running(tmp_path):
    run = make_run(tmp_path, 2, RunStatus.STOPPED)
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


def test_list_says_in_what_runs_of_a_method_differ(tmp_path, capsys):
    make_run(tmp_path, seed=0, name="a")
    make_run(tmp_path, seed=1, planned=6, name="b")
    other = make_run(tmp_path, seed=3, name="c")  # of another method, compared with nobody
    text = (other.folder / "settings.yaml").read_text()
    (other.folder / "settings.yaml").write_text(text.replace("strategy: fedivon", "strategy: x"))
    assert main(["list", str(tmp_path)]) == 0
    heading, _, *rows = capsys.readouterr().out.splitlines()
    assert heading.rstrip().endswith("what differs")
    told = [row[heading.index("what differs") :].strip() for row in rows]
    assert told == ["seed=0 rounds=4", "seed=1 rounds=6", ""]


def test_runs_that_predict_numbers_have_a_column_for_their_error(tmp_path, capsys):
    make_run(tmp_path, name="20260101-000000-a", test={"mean": SCORES})
    assert main(["list", str(tmp_path)]) == 0 and "RMSE" not in capsys.readouterr().out
    make_run(tmp_path, name="20260102-000000-b", test={"mean": {"rmse": 1.5, "nll": 2.0}})
    assert main(["list", str(tmp_path)]) == 0
    head, _, first, second = capsys.readouterr().out.splitlines()
    assert "accuracy %    RMSE     NLL" in head
    assert first.split()[6:9] == ["50.00", "-", "1.2500"]
    assert second.split()[6:9] == ["-", "1.5000", "2.0000"]
