"""The warm process of a node: `python -m fedivon_app.node.zygote SOCKET MODE`.

It imports what a ClientApp needs and takes long, and forks a process for every order that comes
through the socket, or, if it is to keep them, one for all orders of a bundle. It runs no line of a
bundle, has one thread and does not touch CUDA, so that it can be forked safely at any time. It ends
when the other end of the socket is closed.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from fedivon_app.node.flower import IN_CHILD, missing
from fedivon_app.node.orders import Gone, Order, Ready, receive, send
from fedivon_app.node.warm import Mode

# `client_app` brings torch and what else the app imports; the others are imported by clients when
# they first need them, which in a fork is every time.
NEEDED = ("fedivon_app.node.child", "fedivon_app.client_app")
HELPFUL = ("sklearn.datasets",)
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
FAREWELL = 5.0  # seconds that ClientApps have to end


def preload() -> None:
    """Import what ClientApps need, without a thread being started by it."""
    with _one_blas_thread():
        for name in NEEDED:
            import_module(name)
        for name in HELPFUL:
            with suppress(ImportError):
                import_module(name)


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Keep OpenBLAS, which starts its threads when it is loaded, from starting any."""
    before = os.environ.get(BLAS_THREADS)
    os.environ[BLAS_THREADS] = "1"
    yield
    if before is None:
        del os.environ[BLAS_THREADS]
    else:
        os.environ[BLAS_THREADS] = before


def unfit() -> str:
    """Return why this process cannot be forked safely, or nothing."""
    tasks = Path("/proc/self/task")
    if tasks.is_dir() and (threads := len(list(tasks.iterdir()))) > 1:
        return f"it has {threads} threads after its imports"
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        return "its imports have initialised CUDA"
    return ""


@dataclass
class Child:
    """A process for ClientApps, and the task that it was last given; `link` if it is kept."""

    task: int
    bundle: str
    link: socket.socket | None = None


class Zygote:
    """Forks processes for the orders that come through a socket, and tells which are gone."""

    def __init__(self, link: socket.socket, mode: Mode):
        self._link = link
        self._keeps = mode is Mode.WORKER
        self._children: dict[int, Child] = {}
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the node who says when to end

    def serve(self) -> None:
        """Do what the node says until it closes the socket."""
        while True:
            readable, _, _ = select.select([self._link, self._woken], [], [])
            self._reap()
            if self._link in readable:
                order = receive(self._link)
                if not isinstance(order, Order):
                    break
                self._take(order)
        self._end_children()

    def _take(self, order: Order) -> None:
        if not self._keeps:
            from fedivon_app.node.child import carry_out

            pid = self._fork(lambda: carry_out(order, parent=os.getppid()))
            self._children[pid] = Child(order.task, order.bundle)
            return
        kept = self._kept(order)
        kept.task = order.task
        assert kept.link is not None
        with suppress(OSError):  # it is gone, which `_reap` will tell
            send(kept.link, order)

    def _kept(self, order: Order) -> Child:
        """Return the process that is kept for this bundle; one of another bundle ends."""
        from fedivon_app.node.child import carry_out_all

        for child in self._children.values():
            if child.link is not None and child.bundle == order.bundle:
                return child
        for child in self._children.values():
            if child.link is not None:
                child.link.close()
                child.link = None
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            pid = self._fork(lambda: carry_out_all(there, parent=os.getppid()), here)
        self._children[pid] = Child(order.task, order.bundle, here)
        return self._children[pid]

    def _fork(self, work: Callable[[], None], *parents_own: socket.socket) -> int:
        if why := unfit():
            sys.exit(f"fedivon node: the warm process cannot be forked: {why}")
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        signal.set_wakeup_fd(-1)
        kept = [child.link for child in self._children.values() if child.link is not None]
        for one in (self._link, self._woken, self._waker, *kept, *parents_own):
            one.close()
        from fedivon_app.node.child import live

        live(work)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        for pid, child in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[pid]
                if child.link is not None:
                    child.link.close()
                with suppress(OSError):  # the node is gone, which `serve` will see
                    send(self._link, Gone(child.task, os.waitstatus_to_exitcode(status)))

    def _end_children(self) -> None:
        limit = time.monotonic() + FAREWELL
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._children:
                os.kill(pid, number)
            while self._children and (number == signal.SIGKILL or time.monotonic() < limit):
                self._reap()
                time.sleep(0.05)


def main() -> None:
    """Import, say so, and serve."""
    link = socket.socket(fileno=int(sys.argv[1]))
    preload()
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not copy all that it shares
    with suppress(BrokenPipeError):  # the node has ended meanwhile
        send(link, Ready(missing(IN_CHILD) or unfit()))
        Zygote(link, Mode(sys.argv[2])).serve()


if __name__ == "__main__":
    main()
