"""Who makes runs: one federation in this process, or several side by side, each in its own.

Flower's client of its own API is not made for several threads, so that those side by side are
processes, which are told the run configs of their runs and tell what came of them. They import this
module, and so it imports nothing that knows the methods.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Protocol, Self

from fedivon_app.core.errors import FedIvonError, FlowerError
from fedivon_app.federation.run_maker import RunEnd, RunMaker

PATIENCE = 60.0  # seconds for a federation to end


class Place(Protocol):
    """Where runs take place: what makes a federation, and the CPUs of each simulated client."""

    @property
    def cpus(self) -> float:
        """The CPUs for each simulated client."""

    def federation(self) -> AbstractContextManager[RunMaker]:
        """Return the federation, to be entered by `with`."""


@dataclass(frozen=True)
class Job:
    """A run to be made: a name to know it by, Flower's run config, and how many nodes it has."""

    name: str
    config: Mapping[str, str]
    nodes: int | None


@dataclass(frozen=True)
class Made:
    """What came of a job, by its name."""

    name: str
    end: RunEnd
    seconds: float


class Maker(Protocol):
    """Makes runs, as many at a time as it has slots; entered by `with`."""

    slots: int

    @property
    def free(self) -> int:
        """How many more runs may be started now."""

    def start(self, job: Job) -> None:
        """Start a run, or have it started when it is waited for."""

    def wait(self) -> Made:
        """Wait until one of the runs has ended, and return what came of it."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class OneByOne:
    """Makes one run at a time, in a federation that is started for the first of them."""

    slots = 1

    def __init__(self, where: Place, show: Callable[[str], None]):
        self.where = where
        self.show = show
        self._stack = ExitStack()
        self._federation: RunMaker | None = None
        self._job: Job | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def free(self) -> int:
        """How many more runs may be started now."""
        return 1 if self._job is None else 0

    def start(self, job: Job) -> None:
        """Have a run made when it is waited for."""
        self._job = job

    def wait(self) -> Made:
        """Make the run, and return what came of it."""
        assert self._job is not None
        if self._federation is None:
            self._federation = self._stack.enter_context(self.where.federation())
        made = make(self._job, self._federation, self.where, self.show)
        self._job = None
        return made


def make(job: Job, federation: RunMaker, where: Place, show: Callable[[str], None]) -> Made:
    """Make a run in a federation."""
    began = time.monotonic()
    end = federation.run(config=job.config, nodes=job.nodes, cpus=where.cpus, show=show)
    return Made(job.name, end, time.monotonic() - began)


@dataclass(eq=False)
class _Worker:
    """A process with a federation, and the job that it has."""

    process: BaseProcess
    pipe: Connection
    job: Job | None = None


class SideBySide:
    """Makes several runs at a time, in processes that each have a federation of their own."""

    def __init__(self, where: Place, slots: int, show: Callable[[str], None]):
        self.where = where
        self.slots = slots
        self.show = show
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.pipe.close()
            if worker.job is not None:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join(PATIENCE)

    @property
    def free(self) -> int:
        """How many more runs may be started now."""
        return self.slots - sum(worker.job is not None for worker in self._workers)

    def start(self, job: Job) -> None:
        """Give a run to a process that has none, or to a new one."""
        idle = next((worker for worker in self._workers if worker.job is None), None)
        worker = self._hired() if idle is None else idle
        worker.job = job
        worker.pipe.send(job)

    def wait(self) -> Made:
        """Wait until one of the runs has ended, and return what came of it."""
        while True:
            busy = {worker.pipe: worker for worker in self._workers if worker.job is not None}
            for pipe in wait(list(busy)):
                worker = next(one for one in busy.values() if one.pipe is pipe)
                told = _received(worker)
                if isinstance(told, str):
                    self.show(told)
                    continue
                worker.job = None
                if isinstance(told, FedIvonError):
                    raise told
                return told

    def _hired(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.where))
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker


def _received(worker: _Worker) -> Made | FedIvonError | str:
    """A line that a run shows, what came of it, or why its federation could not make it."""
    try:
        told: Made | FedIvonError | str = worker.pipe.recv()
    except EOFError:
        raise FlowerError("a federation beside others ended in the midst of a run") from None
    return told


def serve(pipe: Connection, where: Place) -> None:
    """Make the runs that come through a pipe, in a process of its own, until it is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        with where.federation() as federation:
            for job in _jobs(pipe):
                pipe.send(make(job, federation, where, pipe.send))
    except FedIvonError as error:
        pipe.send(error)
    except BrokenPipeError:
        pass  # nobody is there any more who would want to know


def _jobs(pipe: Connection) -> Iterator[Job]:
    """The runs that are asked for, until whoever asks has gone."""
    with suppress(EOFError, ConnectionResetError):
        while True:
            yield pipe.recv()


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit once: what ends the federation's processes is not to be interrupted."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)
