"""Following a run on a SuperLink that is somebody else's, with Flower's answers made up."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from fedivon_app import superlink
from fedivon_app.superlink import LaunchError, SuperLink

RUNNING = {"success": True, "runs": [{"status": "running"}]}
DONE = {"success": True, "runs": [{"status": "finished:completed"}]}
AWAY = {"success": False, "error-message": "Connection refused"}


@pytest.fixture
def link(monkeypatch):
    """A link whose `flwr list` gives the answers in turn; an exception among them is raised. `link.asked` is all."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, sleep=lambda s: setattr(clock, "now", clock.now + s))
    monkeypatch.setattr(superlink, "time", clock)

    def flwr(command, **_):
        words = [str(word) for word in command[1:]]
        link.asked.append(words[0])
        answer = {"run": {"success": True, "run-id": "7"}, "stop": {"success": True}}.get(words[0])
        if answer is None:
            answer = link.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return subprocess.CompletedProcess(command, 0, f"some words\n{json.dumps(answer)}", "")

    monkeypatch.setattr(subprocess, "run", flwr)
    monkeypatch.setattr(SuperLink, "_follow", lambda self, run_id, show, seen: seen)
    with SuperLink("127.0.0.1:1") as link:
        link.answers, link.asked = [], []
        yield link


def test_a_superlink_that_is_away_for_a_while_does_not_end_the_run(link):
    link.answers = [RUNNING, AWAY, AWAY, RUNNING, DONE]
    assert link.run({"experiment": "demo"}) is None
    assert "stop" not in link.asked


def test_one_that_stays_away_is_named_and_its_run_is_left_alone(link):
    link.answers = [RUNNING, *[AWAY] * 1000]
    with pytest.raises(LaunchError, match="`flwr list` failed: Connection refused"):
        link.run({"experiment": "demo"})
    assert "stop" not in link.asked


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(143)])
def test_who_is_interrupted_stops_the_run(link, interruption):
    link.answers = [RUNNING, interruption]
    with pytest.raises(type(interruption)):
        link.run({"experiment": "demo"})
    assert link.asked[-1] == "stop"


def test_what_flower_refuses_is_an_error(link):
    link.answers = [AWAY]
    with pytest.raises(LaunchError, match="`flwr supernode` failed: Connection refused"):
        link.unregister(5)
