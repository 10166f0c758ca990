"""A run of the inline engine: the ServerApp in a process of its own, with its grid of workers.

Processes come from Python's fork server, which has imported the app once and computes nothing: a
new one is there in milliseconds, and has no threads of another's to stumble over.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from types import ModuleType

from flwr.app import Context, RecordDict

from fedivon_app import server_app
from fedivon_app.federation.inline_grid import InlineGrid
from fedivon_app.federation.inline_worker import become_a_task, serve, speak_into
from fedivon_app.federation.superlink import RunEnd
from fedivon_app.runs.status import RunStatus


@dataclass(frozen=True)
class Task:
    """What a run's process is to do.

    `cores` are all that the run may use, and `threads` those of each client.
    """

    config: Mapping[str, str | bool | int | float]
    nodes: int
    cores: int
    threads: int


def fork_server() -> ForkServerContext:
    """Return the context of processes that have the app imported when they begin."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def start(process: BaseProcess) -> None:
    """Start a process of the fork server without the caller's main module.

    Python would run a script again in each of its processes, down to the line that starts them.
    """
    own = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = own


def inline_grid(nodes: int, cores: int, threads: int = 1) -> InlineGrid:
    """Return a grid whose workers have so many threads each, and so many cores together."""
    context = fork_server()

    def hire(pipe: Connection) -> BaseProcess:
        voice = Connection(os.dup(1), readable=False)
        process = context.Process(target=serve, args=(pipe, threads, voice), daemon=True)
        start(process)
        voice.close()
        return process

    return InlineGrid(nodes, workers=max(1, cores // threads), hire=hire)


def make_run(task: Task, lines: Connection, end: Connection) -> None:
    """Make a run; what it says goes to `lines`, what it came to goes to `end`.

    If whoever asked for it is gone, the run ends too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    speak_into(lines)
    threading.Thread(target=_leave_with, args=(end,), daemon=True).start()
    become_a_task()
    if task.cores < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(task.cores))
    context = Context(
        run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(task.config)
    )
    try:
        with inline_grid(task.nodes, task.cores, task.threads) as grid:
            server_app.main(grid, context)
    except Exception as error:
        traceback.print_exc()
        end.send(RunEnd(RunStatus.FAILED, str(error) or type(error).__name__))
    else:
        end.send(RunEnd(RunStatus.COMPLETED))
    sys.stdout.flush()


def _leave_with(end: Connection) -> None:
    """Wait until nobody is at the other end any more, and exit."""
    try:
        end.recv()
    except (EOFError, OSError):
        os._exit(1)
