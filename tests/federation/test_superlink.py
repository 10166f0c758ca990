"""Following a run on a SuperLink that is somebody else's, with Flower's answers made up."""

import json
import subprocess
from types import SimpleNamespace

import pytest
from flwr.proto.control_pb2 import ListRunsResponse, StreamLogsResponse
from flwr.proto.run_pb2 import Run
from flwr.proto.run_pb2 import RunStatus as FlowerStatus

from fedivon_app.core.errors import FlowerError
from fedivon_app.federation import superlink
from fedivon_app.federation.run_maker import RunEnd
from fedivon_app.federation.superlink import SuperLink
from fedivon_app.logs import MARK
from fedivon_app.runs.status import RunStatus

RUNNING = FlowerStatus(status="running")
DONE = FlowerStatus(status="finished", sub_status="completed")
FAILED = FlowerStatus(status="finished", sub_status="failed", details="no data")
STOPPED = FlowerStatus(status="finished", sub_status="stopped")
COMPLETED = RunEnd(RunStatus.COMPLETED)
AWAY = ConnectionError("Connection refused")


@pytest.fixture
def link(monkeypatch):
    """A link whose SuperLink tells of run 7 what `link.answers` has, in turn.

    An exception among them is raised, None stands for a run that it does not know. `link.said` is
    what the run says, each part at its time; an exception ends the stream. `link.asked` are the
    commands of `flwr` that were called.
    """
    clock = SimpleNamespace(
        now=0.0, monotonic=lambda: clock.now, sleep=lambda s: setattr(clock, "now", clock.now + s)
    )
    monkeypatch.setattr(superlink, "time", clock)

    def flwr(command, **_):
        link.asked.append(str(command[1]))
        refusal = {"success": False, "error-message": "Connection refused"}
        answer = {"run": {"success": True, "run-id": "7"}, "stop": {"success": True}}.get(
            link.asked[-1], refusal
        )
        return subprocess.CompletedProcess(command, 0, f"some words\n{json.dumps(answer)}", "")

    def list_runs(request):
        assert request.run_id == 7
        answer = link.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return ListRunsResponse(run_dict={} if answer is None else {7: Run(status=answer)})

    def stream_logs(request):
        for at, part in [(at, part) for at, part in link.said if at > request.after_timestamp]:
            if isinstance(part, BaseException):
                link.said.remove((at, part))
                raise part
            yield StreamLogsResponse(log_output=part, latest_timestamp=at)

    client = SimpleNamespace(ListRuns=list_runs, StreamLogs=stream_logs, close=lambda: None)
    monkeypatch.setattr(superlink, "init_http_client_from_connection", lambda _: client)
    monkeypatch.setattr(subprocess, "run", flwr)
    with SuperLink("127.0.0.1:1") as link:
        link.answers = []
        link.said = []
        link.asked = []
        yield link


def test_a_superlink_that_is_away_for_a_while_does_not_end_the_run(link):
    link.answers = [RUNNING, AWAY, AWAY, RUNNING, DONE]
    assert link.run({"experiment": "demo"}) == COMPLETED
    assert "stop" not in link.asked


def test_every_line_is_shown_once_and_whole_although_the_connection_was_lost(link):
    link.answers = [RUNNING, RUNNING, DONE]
    link.said = [
        (1.0, f"INFO : Flower's own\n\x1b[92m{MARK}round 1"),
        (2.0, f"/2\n{MARK}round 2/2\n"),
    ]
    link.said += [(2.5, ConnectionError("reset")), (3.0, f"{MARK}completed\n")]
    shown = []
    assert link.run({"experiment": "demo"}, show=shown.append) == COMPLETED
    assert shown == ["round 1/2", "round 2/2", "completed"]
    link.answers = [RUNNING, DONE]
    link.verbose = True
    assert link.run({"experiment": "demo"}, show=shown.append) == COMPLETED
    assert shown[3:] == ["INFO : Flower's own", "round 1/2", "round 2/2", "completed"]


def test_an_error_where_lines_are_shown_is_not_taken_for_the_superlinks(link):
    link.answers = [RUNNING]
    link.said = [(1.0, f"{MARK}round 1/2\n")]

    def closed(line: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        link.run({"experiment": "demo"}, show=closed)


def test_one_that_stays_away_is_named_and_its_run_is_left_alone(link):
    link.answers = [RUNNING, *[AWAY] * 1000]
    with pytest.raises(
        FlowerError, match="the SuperLink at 127.0.0.1:1 does not answer: Connection refused"
    ):
        link.run({"experiment": "demo"})
    assert "stop" not in link.asked


def test_how_a_run_ended_is_told(link):
    link.answers = [RUNNING, FAILED]
    end = link.run({"experiment": "demo"})
    assert end == RunEnd(RunStatus.FAILED, "no data") and end.failed
    link.answers = [RUNNING, STOPPED, DONE, None]
    assert link.end_of("7") is None
    end = link.end_of("7")
    assert end == RunEnd(RunStatus.STOPPED, "finished:stopped") and end.failed
    assert link.end_of("7") == COMPLETED and not COMPLETED.failed
    with pytest.raises(FlowerError, match="knows no run 7"):
        link.end_of("7")


def test_flowers_own_words_before_a_runs_are_left_out(link):
    told = f"Simulation failed with exception: {FAILED.details}"
    link.answers = [FlowerStatus(status="finished", sub_status="failed", details=told)]
    assert link.run({"experiment": "demo"}).text == "no data"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(143)])
@pytest.mark.parametrize("reading", [False, True])
def test_who_is_interrupted_stops_the_run(link, interruption, reading):
    link.answers = [RUNNING, DONE] if reading else [RUNNING, interruption]
    link.said = [(1.0, interruption)] if reading else []
    with pytest.raises(type(interruption)):
        link.run({"experiment": "demo"})
    assert link.asked[-1] == "stop"


def test_what_flower_refuses_is_an_error(link):
    with pytest.raises(FlowerError, match="`flwr supernode` failed: Connection refused"):
        link.unregister(5)


def test_the_box_that_flower_draws_around_an_error_is_not_shown(link, monkeypatch):
    told = "╭─ Error ──────╮\n│ \x1b[91mNo such\x1b[0m key.  │\n╰──────────────╯\n"

    def refuse(command, **_):
        return subprocess.CompletedProcess(command, 1, "", told)

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(FlowerError, match=r"^`flwr supernode` failed: No such key\.$"):
        link.unregister(5)
    boxed = FlowerStatus(status="finished", sub_status="failed", details=told)
    link.answers = [boxed]
    assert link.end_of("7").text == "No such key."


def test_folders_of_the_environment_are_named_from_the_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDIVON_DATA", "sets")
    monkeypatch.delenv("FEDIVON_STATE", raising=False)
    with SuperLink("127.0.0.1:1") as link:
        assert link.environment["FEDIVON_DATA"] == str(tmp_path / "sets")
        assert "FEDIVON_STATE" not in link.environment
