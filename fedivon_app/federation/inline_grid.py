"""The Grid of the inline engine: nodes that are partitions, played by a few worker processes.

Messages wait in a queue, and whichever worker is free takes the next. A thread hands them out and
takes the replies, so that no worker rests while the server does something else. The posterior
that all clients of a round are sent goes to each worker once.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Self

from flwr.app import ArrayRecord, Context, Error, Message, RecordDict

from fedivon_app.core.errors import FlowerError
from fedivon_app.federation.inline_worker import POSTERIOR, Done, Order
from fedivon_app.federation.own_grid import OwnGrid, number

CLIENT_DIED = 8  # Flower's code for a client's process that ended without a reply
FIRST_NODE = 1000  # node ids are no partition numbers, and nobody is to take them for such


# Starts a worker at the end of a pipe. The other connections are the grid's: a worker that has them
# too, because it is a fork, closes them, or it would not notice when the grid is gone.
Hire = Callable[[Connection, Sequence[Connection]], BaseProcess]


@dataclass(eq=False)
class Worker:
    """A worker process, and what it is at."""

    process: BaseProcess
    pipe: Connection
    message: Message | None = None
    batch: int = -1
    held: set[int] = field(default_factory=set)  # numbers of the batch's posteriors that it has


@dataclass(frozen=True)
class _Waiting:
    """A message in the queue, without its posterior, which is this one of the batch."""

    message: Message
    posterior: int | None


class InlineGrid(OwnGrid):
    """A grid of `nodes` simulated nodes, with the workers that `hire` starts.

    To be entered by `with`, so that its processes end. The workers are hired before it has a
    thread; later, only one that died is replaced.
    """

    def __init__(self, nodes: int, workers: int, hire: Hire):
        self.contexts = {
            FIRST_NODE + number: Context(
                run_id=1,
                node_id=FIRST_NODE + number,
                node_config={"partition-id": number, "num-partitions": nodes},
                state=RecordDict(),
                run_config={},
            )
            for number in range(nodes)
        }
        self._hire = hire
        self._size = min(workers, nodes)
        self._workers: list[Worker] = []
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._posteriors: list[ArrayRecord] = []
        self._batch = 0
        self._wanted: set[str] = set()  # ids of the messages whose replies will be asked for
        self._replies: dict[str, Message] = {}
        self._arrived = threading.Condition(self._lock)
        self._numbers = itertools.count()
        self._failure: BaseException | None = None
        self._ended = False
        self._bell, self._ring = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        while len(self._workers) < self._size:
            self._workers.append(self._hired())
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self._ring.send(None)
        self._thread.join()
        self._ring.close()
        for worker in self._workers:
            worker.pipe.close()
            if worker.message is not None:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join()

    # Flower's interface.

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Any:
        """Flower's account of the run, which there is none of."""
        raise FlowerError("the inline engine keeps no account of its run")

    def get_node_ids(self) -> list[int]:
        """Return the ids of all nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send a batch of messages; what is still waiting of an earlier one is given up."""
        batch = list(messages)
        names = [number(message, f"message-{next(self._numbers)}") for message in batch]
        with self._lock:
            self._check()
            self._batch += 1
            self._posteriors = []
            self._queue.clear()
            self._replies.clear()
            self._queue.extend(self._waiting(batch))
            self._wanted = set(names)
        self._ring.send(None)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have come to these messages."""
        with self._lock:
            self._check()
            asked = [name for name in message_ids if name in self._replies]
            return [self._replies.pop(name) for name in asked]

    def rest(self, seconds: float) -> None:
        """Wait until there is a reply to be pulled, or for so many seconds."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._replies or self._failure, seconds)

    # The thread that deals with the workers.

    def _check(self) -> None:
        if self._failure is not None:
            raise FlowerError(f"the inline engine has failed: {self._failure}")

    def _waiting(self, batch: Iterable[Message]) -> Iterator[_Waiting]:
        """Part the messages from their posteriors, of which each is kept once."""
        numbers: dict[int, int] = {}
        for message in batch:
            record = message.content.get(POSTERIOR)
            if not isinstance(record, ArrayRecord):
                yield _Waiting(message, None)
                continue
            if id(record) not in numbers:
                numbers[id(record)] = len(self._posteriors)
                self._posteriors.append(record)
            rest = {name: one for name, one in message.content.items() if name != POSTERIOR}
            message.content = RecordDict(rest)
            yield _Waiting(message, numbers[id(record)])

    def _serve(self) -> None:
        try:
            while not self._ended:
                pipes = {worker.pipe: worker for worker in self._workers}
                for ready in wait([self._bell, *pipes]):
                    if ready is self._bell:
                        self._bell.recv()
                    else:
                        self._receive(next(w for p, w in pipes.items() if p is ready))
                with self._lock:
                    for worker in self._workers:
                        if worker.message is None and self._queue:
                            self._give(worker, self._queue.popleft())
        except BaseException as error:
            with self._lock:
                self._failure = error
                self._arrived.notify_all()

    def _hired(self) -> Worker:
        ours, theirs = Pipe()
        process = self._hire(theirs, [ours, *(worker.pipe for worker in self._workers)])
        theirs.close()
        return Worker(process, ours)

    def _give(self, worker: Worker, waiting: _Waiting) -> None:
        if worker.batch != self._batch:
            worker.batch = self._batch
            worker.held.clear()
        number = waiting.posterior
        new = number is not None and number not in worker.held
        posterior = self._posteriors[number] if number is not None and new else None
        if number is not None:
            worker.held.add(number)
        context = self.contexts[waiting.message.metadata.dst_node_id]
        order = Order(waiting.message, context, self._batch, number, posterior)
        worker.message = waiting.message
        with suppress(BrokenPipeError, ConnectionResetError):  # it is noticed by its silence
            worker.pipe.send(order)

    def _receive(self, worker: Worker) -> None:
        """Take a worker's reply; one that died is answered for, and replaced."""
        message = worker.message
        worker.message = None
        try:
            done: Done = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._replace(worker)
            if message is None:
                return
            code = worker.process.exitcode
            why = Error(code=CLIENT_DIED, reason=f"the client's process died, exit code {code}")
            done = Done(Message(why, reply_to=message), None)
        with self._lock:
            if done.context is not None:
                self.contexts[done.context.node_id] = done.context
            name = done.reply.metadata.reply_to_message_id
            if name in self._wanted:
                self._replies[name] = done.reply
                self._arrived.notify_all()

    def _replace(self, worker: Worker) -> None:
        worker.pipe.close()
        worker.process.join()
        self._workers[self._workers.index(worker)] = self._hired()
