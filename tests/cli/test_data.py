"""`fedivon data`: what it prints is what there is, and what it cannot do is said in a line."""

import re
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of
from fedivon_app.report.label_plot import divided


def printed(capsys):
    """The numbers that were printed, by what they are of."""
    return {
        match[1].strip(): [float(number.replace(",", "")) for number in match[2].split()]
        for match in re.finditer(r"^([a-z ]+?)  +([\d., ]+)$", capsys.readouterr().out, re.M)
    }


def spread(parts):
    return np.percentile([len(part) for part in parts], (0, 50, 100)).tolist()


def test_the_numbers_are_those_of_the_division(tmp_path, capsys):
    words = ["data.partition=dirichlet", "data.alpha=0.3", "data.holdout=50", "seed=4"]
    assert main(["data", "demo", "--set", *words, "--out", str(tmp_path / "a.png")]) == 0
    found = divided(compose(settings_of, "demo", overrides=words))
    labels = [np.unique(found.source.y_train[part]) for part in found.split.train]
    assert printed(capsys) == {
        "training examples": spread(found.split.train),
        "labels": spread(labels),
        "test examples": spread(found.split.test),
    }


def test_what_is_printed_and_where_it_is_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "demo", "--set", "data.holdout=37", "data.max_examples=50"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "20 clients of digits by the rule shards, seed 0"
    assert lines[-4:] == [
        "all clients: 1,000 training examples, 10 of 10 labels",
        "the server: 37 held-out and 355 test examples",
        "not used: 405 training examples",
        "demo-labels.png",
    ]
    assert Path("demo-labels.png").read_bytes().startswith(b"\x89PNG")


def test_subclasses_are_told_where_clients_differ_by_them(tmp_path, capsys):
    fine = np.arange(60) % 6
    arrays = {"x": np.zeros((60, 4, 4), np.uint8), "y": fine // 2, "subclass": fine}
    both = {f"{name}_{part}": a for name, a in arrays.items() for part in ("train", "test")}
    np.savez(tmp_path / "coarse.npz", **both)
    words = ["dataset=null", "data.source=npz", f"data.path={tmp_path / 'coarse.npz'}"]
    words += ["data.partition=superclass", "data.clients=1", "clients_per_round=null"]
    assert main(["data", "demo", "--set", *words, "--out", str(tmp_path / "a.svg")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 client of npz by the rule superclass")
    assert re.search(r"^labels +3 +3 +3$", shown, re.M)
    assert re.search(r"^subclasses +3 +3 +3$", shown, re.M)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["demo", "--out", "a.jpg"], "a.jpg: a figure's file ends in .png, .svg or .pdf"),
        (["sites"], "data.source is `nodes`: every node has a file of its own"),
        (["quickstart"], "data.clients is not set: say among how many"),
        (["dmeo"], "did you mean demo?"),
        (["demo", "--set", "data.clients=5000", "clients_per_round=null"], "5000 clients"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_line(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["data", *words]) == 2
    shown = capsys.readouterr()
    assert says in shown.err and len(shown.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_table_without_a_file_is_told_before_the_number_of_clients(capsys):
    assert main(["data", "table"]) == 2
    assert "set data.path to a CSV, Parquet or Feather file" in capsys.readouterr().err
