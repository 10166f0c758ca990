"""Where run folders are made can be said in two ways, of which both may be used if they agree."""

from pathlib import Path

import pytest

from fedivon_app.cli.parser import parse
from fedivon_app.core.errors import SettingsError
from fedivon_app.runs.place import agreed_place, place_of_runs

WAYS = [
    (None, [], "runs"),
    ("there", [], "there"),
    (None, ["run.folder=there"], "there"),
    (None, ["run.folder=first", "run.folder=there"], "there"),
    (None, ["run={folder: 'there', checkpoint_every: 2}"], "there"),
    (None, ["run.folder=null"], "runs"),
    ("there", ["run.folder=null"], "there"),
    ("there", ["run.folder=./there", "rounds=3"], "there"),
    ("~/a", ["run.folder=~/a"], "~/a"),
]


@pytest.mark.parametrize(("given", "words", "expected"), WAYS)
def test_either_way_counts(given, words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place_of_runs(given, words) == tmp_path / Path(expected).expanduser()


def test_two_places_are_one_too_many():
    with pytest.raises(SettingsError, match=r"both in here \(--runs.* there \(run.folder\)"):
        place_of_runs("here", ["run.folder=there"])


def test_nothing_said_is_nothing_agreed():
    assert agreed_place(None, ["rounds=3"]) is None and agreed_place("", []) is None


@pytest.mark.parametrize("command", [["run", "demo"], ["sweep", "demo", "seed=1,2"]])
def test_a_command_line_gives_either(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse([*command, "--set", "run.folder=there"]).runs == tmp_path / "there"
    assert parse([*command, "--runs", "there"]).runs == tmp_path / "there"
    assert parse(command).runs == tmp_path / "runs"
    with pytest.raises(SettingsError, match="give one of them"):
        parse([*command, "--runs", "here", "--set", "run.folder=there"])


def test_a_file_of_settings_counts_where_the_command_line_says_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("run.folder: there\n")
    line = ["run", "demo", "--set-file", "mine.yaml"]
    assert parse(line).runs == tmp_path / "there"
    assert parse([*line, "--runs", "here"]).runs == tmp_path / "here"
    assert parse([*line, "--set", "run.folder=here"]).runs == tmp_path / "here"
