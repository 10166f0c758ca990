"""What `fedivon node` rests on in flwr, and what it does where that is not there."""

import importlib
from pathlib import Path

import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.errors import SettingsError
from fedivon_app.node import flower, supernode
from fedivon_app.node.flower import IN_CHILD, IN_NODE, LOOP, MAIN, Name, missing
from fedivon_app.node.supernode import mode_of
from fedivon_app.node.warm import Mode


class Became(Exception):
    """In place of a process that becomes another program."""


@pytest.fixture
def became(monkeypatch):
    """What this process would have become."""
    programs: list[list[str]] = []

    def execv(path: Path, words: list[str]) -> None:
        programs.append([str(path), *words])
        raise Became

    monkeypatch.setattr(flower.os, "execv", execv)
    monkeypatch.setenv("PATH", "/usr/bin")
    return programs


@pytest.mark.parametrize("name", [*IN_NODE, *IN_CHILD], ids=str)
def test_flwr_has_every_name_that_the_node_rests_on(name):
    assert name.complaint() == ""


def test_the_names_that_are_replaced_are_those_that_flowers_loop_looks_up():
    loop = importlib.import_module(LOOP)
    looked_up = set(loop.start_client_internal.__code__.co_names)
    assert {"_pull_and_store_message", "_push_messages", "time"} <= looked_up
    assert "pull_objects" in loop._pull_and_store_message.__code__.co_names
    main_module = importlib.import_module(MAIN)
    assert "start_client_internal" in main_module.flower_supernode.__code__.co_names
    assert main_module.start_client_internal is loop.start_client_internal


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (Name("flwr.supernode.nowhere", "main", ()), "flwr has no flwr.supernode.nowhere.main"),
        (Name(LOOP, "_fetch", ()), f"flwr has no {LOOP}._fetch"),
        (Name(LOOP, "_insert_message", ("message",)), "does not take (message)"),
        (Name(LOOP, "pull_objects", ("patience",), more=True), "does not take (patience)"),
        (Name(LOOP, "FAB_VERIFICATION_ERROR", ()), "is no function"),
    ],
)
def test_what_is_not_as_expected_is_named(name, complaint):
    assert complaint in missing([*IN_NODE[:1], name])


@pytest.mark.parametrize(("text", "mode"), [("", Mode.FORK), ("worker", Mode.WORKER)])
def test_the_environment_says_how_client_apps_are_started(text, mode):
    assert mode_of(text) is mode


def test_an_unknown_way_is_answered_with_those_that_there_are():
    with pytest.raises(SettingsError, match="'fast'; it is one of fork, worker, stock"):
        mode_of("fast")


def test_flowers_own_node_is_run_where_the_environment_asks_for_it(became, monkeypatch, capsys):
    monkeypatch.setenv("FEDIVON_NODE", "stock")
    with pytest.raises(Became):
        main(["node", "--insecure", "--superlink", "fl.example.org:1"])
    program = str(flower.BIN / "flower-supernode")
    words = ["--insecure", "--superlink", "fl.example.org:1"]
    assert became == [[program, "flower-supernode", *words]]
    assert flower.os.environ["PATH"].split(":")[0] == str(flower.BIN)
    assert capsys.readouterr().err == ""


class Idle:
    """In place of a warm process: it has this complaint."""

    def __init__(self, complaint: str):
        self.text = complaint
        self.closed = False

    def complaint(self) -> str:
        return self.text

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("names", "complaint", "said"),
    [
        ([Name(LOOP, "_fetch", ())], "", f"flwr has no {LOOP}._fetch"),
        (IN_NODE, "it has 3 threads", "the warm process is of no use, for it has 3 threads"),
    ],
)
def test_flowers_own_node_takes_over_with_one_line_where_ours_cannot_work(
    names, complaint, said, became, monkeypatch, capsys
):
    warm = Idle(complaint)
    monkeypatch.delenv("FEDIVON_NODE", raising=False)
    monkeypatch.setattr(supernode, "IN_NODE", names)
    monkeypatch.setattr(supernode, "WarmProcess", lambda mode: warm)
    with pytest.raises(Became):
        main(["node", "--insecure"])
    assert warm.closed and became[0][1:] == ["flower-supernode", "--insecure"]
    lines = capsys.readouterr().err.splitlines()
    end = "Flower's own SuperNode takes over, which is slower"
    assert lines == [f"fedivon node: {said}; {end}"]
