"""The inline engine: real runs with worker processes, and what becomes of those that die."""

import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from fedivon_app.core.errors import FlowerError
from fedivon_app.federation import run_queue
from fedivon_app.federation.fork_server import fork_server
from fedivon_app.federation.inline_federation import InlineFederation
from fedivon_app.federation.inline_grid import InlineGrid
from fedivon_app.federation.run_queue import Launch, Where
from fedivon_app.runs.plan import plan_runs
from fedivon_app.runs.status import RunStatus
from tests import golden
from tests.federation.inline_clients import KEEP, serve

SMALL = [
    "data.clients=4",
    "rounds=2",
    "clients_per_round=null",
    "evaluation.samples=2",
    "evaluation.final_samples=2",
    "run.client_state=run",
]


@pytest.fixture
def grid():
    """Five nodes and two workers, whose clients do what the message says."""
    golden.prepare_process()

    def hire(pipe, of_the_grid):
        process = fork_server().Process(target=serve, args=(pipe,), daemon=True)
        process.start()
        return process

    with InlineGrid(5, workers=2, hire=hire) as started:
        yield started


def ask(grid, *tasks, arrays=None, timeout=60):
    """The replies to a task for each node in turn, by partition."""
    messages = []
    for node, task in zip(grid.get_node_ids(), tasks, strict=False):
        content = RecordDict({"config": ConfigRecord({"do": task})})
        if arrays is not None:
            content["posterior"] = arrays
        messages.append(Message(content, node, MessageType.TRAIN))
    replies = grid.send_and_receive(messages, timeout=timeout)
    return {grid.get_node_ids().index(one.metadata.src_node_id): one for one in replies}


def told(reply):
    return dict(reply.content["told"])


def test_every_message_is_answered_by_its_node_with_what_was_sent(grid):
    arrays = ArrayRecord({"mean": Array(np.arange(4, dtype=np.float32))})
    replies = ask(grid, *["sum"] * 5, arrays=arrays)
    assert {node: told(reply)["partition"] for node, reply in replies.items()} == {
        node: node for node in range(5)
    }
    assert all(told(reply)["sum"] == 6.0 for reply in replies.values())
    assert len({told(reply)["pid"] for reply in replies.values()}) == 2


def test_what_a_client_keeps_is_there_in_the_next_round_whichever_worker_it_gets(grid):
    for count in (1, 2, 3):
        replies = ask(grid, *[KEEP] * 5)
        assert [told(replies[node])["kept"] for node in range(5)] == [count] * 5


def test_a_client_that_raises_answers_with_its_words_and_the_next_message_works(grid):
    replies = ask(grid, "raise", "sum")
    assert "the scale is broken" in replies[0].error.reason and not replies[1].has_error()
    assert not ask(grid, "sum")[0].has_error()


def test_a_worker_that_dies_costs_its_message_alone(grid):
    replies = ask(grid, "die", "sum", "sum", "die", "sum")
    dead = [node for node, reply in replies.items() if reply.has_error()]
    assert sorted(dead) == [0, 3]
    assert f"exit code {-signal.SIGKILL}" in replies[0].error.reason
    assert not any(reply.has_error() for reply in ask(grid, *["sum"] * 5).values())


def test_who_is_late_is_not_waited_for_and_disturbs_nobody(grid):
    assert ask(grid, "sleep", "sleep", "sum", timeout=0.2) == {}
    replies = ask(grid, *["sum"] * 5)
    assert sorted(replies) == [0, 1, 2, 3, 4]
    assert not any(reply.has_error() for reply in replies.values())


def fork_server_of_ours() -> psutil.Process:
    own = psutil.Process().children()
    (server,) = [one for one in own if "forkserver" in " ".join(one.cmdline())]
    return server


def left_over() -> list[str]:
    """What the fork server has forked and is still there."""
    server = fork_server_of_ours()
    _, alive = psutil.wait_procs(server.children(recursive=True), timeout=10)
    return [str(one) for one in alive]


def launched(tmp_path: Path, *words: str, lines: list[str] | None = None) -> run_queue.Outcome:
    overrides = [*SMALL, *words, f"run.folder={tmp_path}"]
    (plan,) = plan_runs("demo", {"strategy": ["bayes-admm"]}, overrides)
    launch = Launch(settings=plan.settings, config=plan.config)
    show = (lines if lines is not None else []).append
    (outcome,) = run_queue.launch([launch], Where(engine="inline"), show)
    return outcome


def test_a_run_shows_its_rounds_leaves_its_folder_and_ends_its_processes(tmp_path):
    lines: list[str] = []
    outcome = launched(tmp_path, lines=lines)
    assert outcome.end.status is RunStatus.COMPLETED, outcome
    assert [line.split()[1] for line in lines if line.startswith("round ")] == ["1/2", "2/2"]
    assert (outcome.folder / "report.html").is_file()
    assert left_over() == []


def test_a_run_that_fails_says_why(tmp_path):
    outcome = launched(tmp_path, "server.max_growth=1.0001")
    assert outcome.end.failed and "diverged" in outcome.end.text
    assert outcome.folder is not None


def test_a_simulation_has_to_know_its_number_of_clients():
    with pytest.raises(FlowerError, match=r"data\.clients"), InlineFederation() as federation:
        federation.run({}, nodes=None)


def test_whoever_stops_showing_ends_the_run(tmp_path):
    def show(line):
        raise KeyboardInterrupt

    config = {"experiment": "demo", "runs": str(tmp_path), "set": " ".join(SMALL)}
    with pytest.raises(KeyboardInterrupt), InlineFederation() as federation:
        federation.run(config, nodes=4, show=show)
    assert not (next(tmp_path.iterdir()) / "summary.json").exists()
    assert left_over() == []


def test_a_run_whose_process_is_killed_takes_its_forked_workers_with_it(tmp_path):
    forked: list[psutil.Process] = []

    def show(line):
        if line.startswith("round 1/"):
            (run,) = fork_server_of_ours().children()
            forked.extend(run.children())
            run.kill()

    config = {"experiment": "demo", "runs": str(tmp_path), "set": " ".join(SMALL)}
    with InlineFederation(cores=2) as federation:
        end = federation.run(config, nodes=4, show=show)
    assert end.failed and f"exit code {-signal.SIGKILL}" in end.text
    assert len(forked) == 2
    _, alive = psutil.wait_procs(forked, timeout=10)
    assert alive == []
