"""The process for the ClientApps of one bundle, forked from the warm one.

It imports the app, and forks a process for every order, in which Flower's `run_clientapp` does what
it does in a process of its own; or, if no forks are wanted, it carries out all orders itself.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module, invalidate_caches
from typing import Any

import numpy as np
from flwr.clientapp.utils import get_load_client_app_fn
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.exit.exit_handler import trigger_exit_handlers
from flwr.supercore.tls import validate_and_resolve_root_certificates
from flwr.supernode.runtime.run_clientapp import run_clientapp
from threadpoolctl import ThreadpoolController

from fedivon_app.node.family import UNFIT, Family, unfit
from fedivon_app.node.flower import CLIENT_APP
from fedivon_app.node.orders import Gone, Order, receive, send
from fedivon_app.node.seclusion import seclude

OWN = "fedivon_app"  # the package that comes with a run


def live(
    link: socket.socket,
    node: socket.socket,
    first: Order | None,
    forks: bool,
    only_reaches: str | None = None,
) -> None:
    """Carry out the orders that come through `link`, until that is closed.

    The app of `first` is imported beforehand. That a fork is gone is told to the node. With an
    address that it `only_reaches` there is no other network, from before the import on.
    """
    if only_reaches is not None:
        seclude(only_reaches)
    forget_own_modules()
    stock = import_module(CLIENT_APP)
    setattr(stock, "install_from_fab", already_installed)  # noqa: B010
    if first is not None:
        import_app(first)
    if not forks:
        setattr(stock, "flwr_exit", end_of_task)  # noqa: B010
        carry_out_all(link)
        return
    if first is not None and unfit():
        sys.exit(UNFIT)
    gc.freeze()
    fork_for_all(link, node)


def forget_own_modules() -> None:
    """Forget the modules of this package, for those of the run's bundle are to be imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == OWN]:
        del sys.modules[name]
    invalidate_caches()


def already_installed(*words: Any, **options: Any) -> None:
    """Do nothing in place of Flower's installation: the node has unpacked the bundle before."""


def import_app(order: Order) -> None:
    """Import the ClientApp of a bundle; what that raises will be raised again by every order."""
    load = get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    with suppress(Exception, SystemExit):
        load(order.app, order.version, order.bundle)


def fork_for_all(link: socket.socket, node: socket.socket) -> None:
    """Fork a process for every order."""
    family = Family()
    tasks: dict[int, int] = {}
    while True:
        readable = family.wait(link)
        for pid, status in family.ended().items():
            send(node, Gone(tasks.pop(pid), status))
        if readable:
            order = receive(link)
            if not isinstance(order, Order):
                break
            work = partial(carry_out, order, os.getpid())
            tasks[family.fork(work, parents_own=[link, node])] = order.task
    family.signal(signal.SIGTERM)
    family.see_off()


def carry_out_all(link: socket.socket) -> None:
    """Carry out all orders here; what the app caches lasts."""
    start_parent_process_monitor(os.getppid())
    while isinstance(order := receive(link), Order):
        carry_out(order)


def end_of_task(code: int, *words: Any, **options: Any) -> None:
    """Do what Flower does at the end of a ClientApp's process, without ending it."""
    trigger_exit_handlers(run_before_force_exit=True)
    trigger_exit_handlers(run_before_force_exit=False)


def carry_out(order: Order, parent: int | None = None) -> None:
    """Do what the program `flwr-clientapp` does; end with the process `parent` if it is given."""
    become_a_client_app()
    run_clientapp(
        runtime_api_address=order.address,
        token=order.token,
        insecure=not order.secure,
        certificates=validate_and_resolve_root_certificates(order.ca, not order.secure),
        parent_pid=parent,
        runtime_dependency_install=False,
    )


def become_a_client_app() -> None:
    """Make this process what a new one would be, apart from what it has imported.

    Its signals are the usual ones, numpy draws numbers that no other fork draws (torch begins with
    the same ones in every process, and `random` sees to it by itself), and OpenBLAS has its
    threads.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    np.random.seed()
    if (threads := blas_threads()) > 1:
        ThreadpoolController().select(internal_api="openblas").limit(limits=threads)
    sys.argv = ["flwr-clientapp"]


def blas_threads() -> int:
    """Return how many threads OpenBLAS takes when it is loaded."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if (value := os.environ.get(name, "")).isdigit():
            return int(value)
    return len(os.sched_getaffinity(0))
