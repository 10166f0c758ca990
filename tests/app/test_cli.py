"""The command line, used wrongly as a new user would: one clear line, a non-zero exit, no traceback."""

import numpy as np
import pytest

from fedivon_app.cli import main, table


def write_npz(path, labels=None, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (40, 8, 8), np.uint8),
        "y_train": np.arange(40) % 10 if labels is None else labels,
        "x_test": rng.integers(0, 256, (20, 8, 8), np.uint8),
        "y_test": np.arange(20) % 10,
    }
    np.savez(path, **(arrays | changes))


NPZ = ["dataset=null", "data.source=npz", "data.partition=iid", "data.clients=2", "clients_per_round=2"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--strategy", "fedivom"], "there is no strategy 'fedivom': did you mean fedivon?"),
        (["--set", "client.batchsize=3"], "there is no setting 'client.batchsize': did you mean batch_size?"),
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
    assert "GM, 64 samples" in lines[3] and lines[3].split()[-4:] == ["50.00", "1.0000", "0.1000", "0.6000"]
    assert "GM at the mean, best held-out" in lines[4]
