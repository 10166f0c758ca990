"""The inline engine: simulations of the same ServerApp and ClientApp without Flower's processes.

Flower's own engine passes every message through Ray and a SuperLink, which costs more than the
training of a small client. Here the ServerApp is given a Grid of worker processes, one a core, and
nothing else differs: same messages, same seeds, same numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Self

from fedivon_app.core.errors import FlowerError
from fedivon_app.federation.fork_server import fork_server, start
from fedivon_app.federation.run_maker import RunConfig, RunEnd
from fedivon_app.logs import MARK
from fedivon_app.runs.status import RunStatus


@dataclass(frozen=True)
class Task:
    """What a run's process is to do.

    `cores` are all that the run may use, and `threads` those of each client.
    """

    config: RunConfig
    nodes: int
    cores: int
    threads: int


class InlineFederation:
    """Makes simulated runs one after the other: `with InlineFederation() as federation: ...`."""

    def __init__(self, cores: int | None = None, verbose: bool = False):
        self.cores = cores or os.cpu_count() or 1
        self.verbose = verbose

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: the processes of a run end with it."""

    def run(
        self,
        config: RunConfig,
        nodes: int | None = None,
        cpus: float = 1,
        show: Callable[[str], None] = print,
    ) -> RunEnd:
        """Make a run, show its progress line by line, and return what it came to."""
        if nodes is None:
            raise FlowerError("a simulation has to know its number of clients: set data.clients")
        threads = max(1, min(int(cpus), self.cores))
        task = Task(config=config, nodes=nodes, cores=self.cores, threads=threads)
        listener, speaker = Pipe(duplex=False)
        ours, theirs = Pipe()
        process = fork_server().Process(target=_make_run, args=(task, speaker, theirs))
        start(process)
        speaker.close()
        theirs.close()
        try:
            for line in _lines(listener):
                if MARK in line or self.verbose:
                    show(line.split(MARK, 1)[-1])
            return _end_of(process, ours)
        finally:
            ours.close()  # the run ends, if it has not
            process.join()


def _make_run(task: Task, lines: Connection, end: Connection) -> None:
    """Make a run in this process, which has the app: who asks for it does without."""
    from fedivon_app.federation.inline_run import make_run

    make_run(task, lines, end)


def _lines(listener: Connection) -> Iterator[str]:
    """What the processes of a run say, until the last of them ends."""
    with open(os.dup(listener.fileno()), encoding="utf-8", errors="replace") as stream:
        listener.close()
        for line in stream:
            yield line.rstrip()


def _end_of(process: BaseProcess, end: Connection) -> RunEnd:
    with suppress(EOFError, ConnectionResetError):
        told: RunEnd = end.recv()
        return told
    process.join()
    return RunEnd(RunStatus.FAILED, f"the run's process died, exit code {process.exitcode}")
