"""The commands, used wrongly as a new user would: one clear line, a non-zero exit, no traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.cli.commands import settings as settings_command
from fedivon_app.cli.main import main
from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import DataError, DivergenceError, FlowerError, RunError, SettingsError
from fedivon_app.core.posterior import Posterior
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.server.setup import prepare
from tests.cli.helpers import SCORES, make_run, write_npz
from tests.one_process import in_one_process

NPZ = [
    "dataset=null",
    "data.source=npz",
    "data.partition=iid",
    "data.clients=2",
    "clients_per_round=2",
]

OWN_FILES = ["data.source=nodes", "data.shape=[8, 8, 1]", "data.num_classes=10"]


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
        (["--set", "client.ess=1e300"], "client.ess is '1e300': Input should be less than or"),
        (["--set", "data.clients=0"], "data.clients is 0"),
        (["--set", "clients_per_round=21"], "clients_per_round is 21, but data.clients is 20"),
        (["--set", "merge.robust=held-out"], "held-out, but data.holdout is 0"),
        (["--set", *NPZ, "data.path={tmp}/none.npz"], "none.npz"),
        (["--set", *NPZ, "data.path={tmp}/corrupt.npz"], "corrupt.npz"),
        (["--set", *NPZ, "data.path={tmp}/labels.npz", "data.num_classes=10"], "labels.npz"),
        (["--set", "model.name=lenett"], "lenett"),
        (["--set", "data.partition=shard"], "shards"),
        (["--set", "data.source=digit"], "digits"),
        (["--set", "model.options.sizes=wide"], "sizes"),
        (["--set", "data.clients=5000"], "5000 clients"),
        (["--runs", "{tmp}/corrupt.npz"], "corrupt.npz is not a folder"),
        (["--strategy", "bayes-admm-full"], "set model.name=linear, not mlp"),
        (["--strategy", "fedper", "--set", "client.head=neck"], "no parameters under 'neck'"),
        (["--set", "client.device=rocket"], "client.device is 'rocket'"),
        (["--engine", "inline", "--gpus", "0.5"], "--gpus is for Flower's engine"),
        (["--ca", "{tmp}/none.crt"], "--ca is for talking to a SuperLink: add --superlink"),
        (["--signature", "{tmp}/none.sig"], "none.sig cannot be read: No such file"),
        (["--gpus", "0.5"], "--gpus is 0.5, but torch finds no CUDA here"),
        (["--set", "evaluation.ood=mnistt"], "did you mean mnist?"),
        (["--set", "evaluation.ood=npz", "evaluation.ood_path={tmp}/none.npz"], "none.npz"),
        (["--set", "dataset=null", *OWN_FILES], "a simulation has no sites"),
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


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("one\ntwo"), 2),
        (DataError("one\ntwo"), 2),
        (FlowerError("one\ntwo"), 2),
        (RunError("one\ntwo"), 1),
        (DivergenceError("one\ntwo"), 1),
    ],
)
def test_an_error_is_told_line_by_line_and_has_an_exit_status(error, code, monkeypatch, capsys):
    def fail(options):
        raise error

    monkeypatch.setattr(settings_command, "run", fail)
    assert main(["settings", "demo"]) == code
    assert capsys.readouterr().err == "fedivon: one\nfedivon: two\n"


def test_a_mistake_of_the_program_is_not_hidden(monkeypatch):
    def fail(options):
        raise ValueError("no fault of the user's")

    monkeypatch.setattr(settings_command, "run", fail)
    with pytest.raises(ValueError, match="no fault"):
        main(["settings", "demo"])


def test_an_interrupted_command_says_how_to_go_on(monkeypatch, capsys):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(settings_command, "run", interrupt)
    assert main(["settings", "demo", "--set", "run.folder=/a b"]) == 130
    again = "go on with: fedivon settings demo --set 'run.folder=/a b'"
    assert capsys.readouterr().err == f"\nfedivon: interrupted; {again}\n"


def test_an_interrupted_run_is_named(tmp_path, monkeypatch, capsys):
    """By the command that resumes it, from wherever it is given."""
    federation = in_one_process(monkeypatch)
    made = []

    def interrupt(config, nodes, cpus, show):
        made.append(config["folder"])
        if len(made) == 2:
            (Path(made[-1]) / "settings.yaml").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr(federation, "run", interrupt)
    words = ["run", "demo", "--runs", str(tmp_path)]
    assert main(words) == 130
    # nothing was written to its folder, which is gone
    assert capsys.readouterr().err.endswith(f"go on with: fedivon {' '.join(words)}\n")
    assert main(words) == 130
    assert capsys.readouterr().err.endswith(f"go on with: fedivon resume {made[-1]}\n")
    link = ["--superlink", "here:1", "--ca", "/keys/ca.crt"]
    assert main([*words, *link]) == 130
    again = f"fedivon resume {made[-1]} {' '.join(link)}\n"
    assert capsys.readouterr().err.endswith(again)


def test_a_process_that_is_told_to_end_exits_in_order():
    program = (
        "import time\n"
        "from fedivon_app.cli.main import exit_on_signals\n"
        "exit_on_signals()\n"
        "try:\n"
        "    print(flush=True)\n"
        "    time.sleep(60)\n"
        "finally:\n"
        "    print('in order')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "\n"
    os.kill(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "in order\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_settings_prints_what_a_run_would_use(capsys):
    assert main(["settings", "demo", "--strategy", "fedavg", "--set", "seed=7"]) == 0
    shown = capsys.readouterr().out
    assert "strategy: fedavg" in shown and "seed: 7" in shown and "optimizer: adam" in shown


def test_show_needs_a_finished_run(tmp_path, capsys):
    assert main(["show", str(tmp_path)]) == 2
    assert "has no summary.json" in capsys.readouterr().err


def test_show_prints_the_scores_of_a_run(tmp_path, capsys):
    run = make_run(tmp_path, 4, test={"mean": SCORES})
    assert main(["show", str(run.folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:5] == ["demo", "fedivon", "0", "4", "GM"]
    assert lines[2].split()[-4:] == ["50.00", "1.2500", "0.1000", "0.6000"]


def test_show_draws_in_the_format_of_the_suffix(tmp_path, capsys):
    run = make_run(tmp_path, 4, test={"mean": SCORES})
    assert main(["show", str(run.folder), "--plot", str(tmp_path / "a.jpg")]) == 2
    assert "ends in .png, .svg or .pdf, not in '.jpg'" in capsys.readouterr().err
    picture = tmp_path / "a.pdf"
    assert main(["show", str(run.folder), "--plot", str(picture), "--width", "page"]) == 0
    assert picture.read_bytes().startswith(b"%PDF")
    assert main(["show", str(run.folder), "--width", "page"]) == 2
    assert "--plot FILE" in capsys.readouterr().err
    assert main(["show", str(run.folder), "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("experiment,strategy,seed,round,model,samples,acc")


def test_show_gives_means_over_seeds(tmp_path, capsys):
    runs = [
        make_run(tmp_path, 4, seed=seed, test={"mean": SCORES | {"nll": nll}})
        for seed, nll in enumerate((1.0, 1.5))
    ]
    other = make_run(tmp_path, 4, planned=5, test={"mean": SCORES})
    words = ["show", *(str(run.folder) for run in (*runs, other)), "--over-seeds"]
    assert main(words) == 0
    first, second = (line.split() for line in capsys.readouterr().out.splitlines()[2:])
    assert first[:3] == ["demo", "rounds=4", "2"] and second[:3] == ["demo", "rounds=5", "1"]
    assert first[-10:] == [
        "0.00",
        "1.250",
        "±",
        "0.354",
        "0.100",
        "±",
        "0.000",
        "0.600",
        "±",
        "0.000",
    ]
    assert second[-4:] == ["50.00", "1.2500", "0.1000", "0.6000"]
    assert main([*words, "--format", "json"]) == 0
    one, alone = json.loads(capsys.readouterr().out)
    assert one["nll"] == 1.25 and one["nll_sd"] == pytest.approx(0.125**0.5)
    assert alone["nll"] == 1.25 and alone["nll_sd"] is None


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
        == f"fedivon: {tmp_path / 'empty'} is not a run folder, and there is no readable run "
        "inside\n"
    )


def test_uncertainty_measures_and_writes_the_page(tmp_path, capsys):
    run = make_run(tmp_path, 4, test={"mean": SCORES})
    assert main(["uncertainty", str(run.folder)]) == 2
    assert f"{run.folder} has no checkpoint" in capsys.readouterr().err
    flat = prepare(run.settings).flat
    posterior = Posterior(flat.mean(), np.full(len(flat), 50.0, np.float32))
    run.save(Checkpoint(round=4, payload=Payload(posterior), state={}))
    assert main(["uncertainty", str(run.folder), "--samples", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[2:4]] == ["GM at the mean", "GM, 2 samples"]
    assert lines[-1] == str(run.folder / "report.html")
    assert (run.folder / "uncertainty.json").is_file()
