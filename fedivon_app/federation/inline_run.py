"""A run of the inline engine: the ServerApp in a process of its own, with its grid of workers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from flwr.app import Context, RecordDict

from fedivon_app import server_app
from fedivon_app.federation.fork_server import fork_server, start
from fedivon_app.federation.inline_federation import Task
from fedivon_app.federation.inline_grid import InlineGrid
from fedivon_app.federation.inline_worker import become_a_task, serve, speak_into
from fedivon_app.federation.run_maker import RunEnd
from fedivon_app.runs.status import RunStatus


def inline_grid(nodes: int, cores: int, threads: int = 1, fresh: bool = False) -> InlineGrid:
    """Return a grid whose workers have so many threads each, and so many cores together.

    A `fresh` process has the app, no threads and nothing computed yet: its first workers are forks
    of it and there at once. All others come from a fork server of this process's own, which has to
    import the app.
    """
    workers = min(nodes, max(1, cores // threads))
    forks_left = workers if fresh else 0

    def hire(pipe: Connection, of_the_grid: Sequence[Connection]) -> BaseProcess:
        nonlocal forks_left
        voice = Connection(os.dup(1), readable=False)
        if forks_left:
            forks_left -= 1
            arguments = (pipe, threads, voice, of_the_grid)
            process: BaseProcess = get_context("fork").Process(target=serve, args=arguments)
        else:
            process = fork_server().Process(target=serve, args=(pipe, threads, voice))
        process.daemon = True
        start(process)
        voice.close()
        return process

    return InlineGrid(nodes, workers=workers, hire=hire)


def make_run(task: Task, lines: Connection, end: Connection) -> None:
    """Make a run; what it says goes to `lines`, what it came to goes to `end`.

    If whoever asked for it is gone, the run ends too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    speak_into(lines)
    become_a_task()
    if task.cores < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(task.cores))
    context = Context(
        run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(task.config)
    )
    try:
        with inline_grid(task.nodes, task.cores, task.threads, fresh=True) as grid:
            threading.Thread(target=_leave_with, args=(end,), daemon=True).start()
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
