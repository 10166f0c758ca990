"""Processes that are forked from this one, and word of their ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

FAREWELL = 5.0  # seconds that processes have to end by themselves
UNFIT = 75  # the status of a process that ended because it cannot be forked safely


def unfit() -> str:
    """Return why this process cannot be forked safely, or nothing."""
    threads = Path("/proc/self/task")
    if threads.is_dir() and (count := len(list(threads.iterdir()))) > 1:
        return f"it has {count} threads"
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        return "it has initialised CUDA"
    return ""


class Family:
    """The processes that this one has forked; while it waits, it hears of their ends."""

    def __init__(self) -> None:
        self._members: set[int] = set()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def fork(self, work: Callable[[], None], parents_own: Iterable[socket.socket]) -> int:
        """Do some work in a new process, which has no use for these sockets; return its id.

        The process ends with the work, and nothing of what it has from here is torn down.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            self._members.add(pid)
            return pid
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (self._woken, self._waker, *parents_own):
                one.close()
            work()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(bool(end.code))
        except BaseException as error:
            print(f"fedivon node: a ClientApp's process failed: {error!r}", file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def wait(self, link: socket.socket, seconds: float | None = None) -> bool:
        """Wait until a process has ended or there is something to read; tell whether there is."""
        readable, _, _ = select.select([link, self._woken], [], [], seconds)
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        return link in readable

    def ended(self) -> dict[int, int]:
        """Return how processes have ended, by their ids, each once.

        A negative status is the signal that ended it.
        """
        found = {}
        for pid in list(self._members):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._members.remove(pid)
                found[pid] = os.waitstatus_to_exitcode(status)
        return found

    def signal(self, number: int) -> None:
        """Send a signal to all processes."""
        for pid in self._members:
            os.kill(pid, number)

    def see_off(self) -> None:
        """Wait until all processes have ended, and kill those that take too long for that."""
        limit = time.monotonic() + FAREWELL
        while self._members:
            self.ended()
            if time.monotonic() > limit:
                self.signal(signal.SIGKILL)
            time.sleep(0.02)
