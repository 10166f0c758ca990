"""The warm process of a node: `python -m fedivon_app.node.zygote SOCKET MODE`.

It imports what ClientApps need and takes long, and forks a process for every bundle for which
orders come through the socket. It runs no line of a bundle itself, has one thread and does not
touch CUDA, so that it can be forked safely at any time. It ends when the other end of the socket is
closed.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from fedivon_app.node.family import UNFIT, Family, unfit
from fedivon_app.node.flower import IN_CHILD, missing
from fedivon_app.node.orders import Gone, Order, Ready, receive, send
from fedivon_app.node.warm import Mode

# `client_app` brings torch and what else the app imports. The others are imported when they are
# first needed, which in a fork is every time.
NEEDED = ("fedivon_app.node.bundle", "fedivon_app.client_app")
HELPFUL = ("httpcore", "encodings.cp437", "sklearn.datasets", "torch.profiler")
COMPILED = "fedivon_app.core.compiled"  # needs the extra `fast`
BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def preload() -> None:
    """Import what ClientApps need, without a thread being started by it."""
    with _one_blas_thread():
        for name in NEEDED:
            import_module(name)
        for name in HELPFUL:
            with suppress(ImportError):
                import_module(name)
        with suppress(ImportError):
            import_module(COMPILED).warm_up()


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


@dataclass
class Home:
    """The process for the ClientApps of a bundle, and the order that it was last given."""

    link: socket.socket
    order: Order
    imports: bool


class Zygote:
    """Passes orders on to the process of their bundle, and tells the node which are gone."""

    def __init__(self, node: socket.socket, mode: Mode):
        self._node = node
        self._mode = mode
        self._family = Family()
        self._homes: dict[int, Home] = {}  # by process id; the last one is in use
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the node who says when to end

    def serve(self) -> None:
        """Do what the node says until it closes the socket."""
        while True:
            readable = self._family.wait(self._node)
            for pid, status in self._family.ended().items():
                self._ended(self._homes.pop(pid), status)
            if readable:
                order = receive(self._node)
                if not isinstance(order, Order):
                    break
                self._pass_on(order)
        for home in self._homes.values():
            home.link.close()
        self._family.see_off()

    def _pass_on(self, order: Order) -> None:
        home = next(reversed(self._homes.values()), None)
        if home is None or home.order.bundle != order.bundle:
            if home is not None:
                home.link.close()  # by which it ends
            home = self._start(order, imports=True)
        home.order = order
        with suppress(OSError):  # it is gone, which will be heard of
            send(home.link, order)

    def _start(self, order: Order, imports: bool) -> Home:
        """Start the process of a bundle, which imports the app first, or leaves that to forks."""
        from fedivon_app.node.bundle import live

        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            forks = self._mode is Mode.FORK
            first = order if imports else None
            node = order.address if order.secluded else None
            work = partial(live, there, self._node, first, forks, only_reaches=node)
            home = Home(here, order, imports)
            self._homes[self._family.fork(work, parents_own=[here])] = home
        return home

    def _ended(self, home: Home, status: int) -> None:
        """Tell that a process is gone, unless it is to be replaced by one that imports nothing."""
        home.link.close()
        if status == UNFIT and home.imports:
            send(self._start(home.order, imports=False).link, home.order)
        else:
            with suppress(OSError):  # the node is gone, which `serve` will see
                send(self._node, Gone(home.order.task, status))


def main() -> None:
    """Import, say so, and serve."""
    node = socket.socket(fileno=int(sys.argv[1]))
    preload()
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not copy all that it shares
    with suppress(BrokenPipeError):  # the node has ended meanwhile
        send(node, Ready(missing(IN_CHILD) or unfit()))
        Zygote(node, Mode(sys.argv[2])).serve()


if __name__ == "__main__":
    main()
