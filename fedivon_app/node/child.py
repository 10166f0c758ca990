"""What a fork of the warm process does: Flower's `run_clientapp`, on the bundle of the run."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module, invalidate_caches
from typing import Any, NoReturn

import numpy as np
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.exit.exit_handler import trigger_exit_handlers
from flwr.supercore.tls import validate_and_resolve_root_certificates
from flwr.supernode.runtime.run_clientapp import run_clientapp
from threadpoolctl import ThreadpoolController

from fedivon_app.node.orders import Order, receive

OWN = "fedivon_app"  # the package that comes with a run


def live(work: Callable[[], None]) -> NoReturn:
    """Do the work that a process was forked for, and end it; nothing else of it is torn down."""
    status = 1
    try:
        begin()
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


def begin() -> None:
    """Make this process what a new one would be, apart from what it has imported.

    Its signals are the usual ones, numpy draws numbers that no other fork draws (torch begins with
    the same ones in every process, and `random` sees to it by itself), and OpenBLAS has its
    threads. The app's own modules are forgotten: those of the run's bundle are to be imported.
    """
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    np.random.seed()
    if (threads := blas_threads()) > 1:
        ThreadpoolController().select(internal_api="openblas").limit(limits=threads)
    sys.argv = ["flwr-clientapp"]
    for name in [name for name in sys.modules if name.partition(".")[0] == OWN]:
        del sys.modules[name]
    invalidate_caches()


def blas_threads() -> int:
    """Return how many threads OpenBLAS takes when it is loaded."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if (value := os.environ.get(name, "")).isdigit():
            return int(value)
    return len(os.sched_getaffinity(0))


def carry_out(order: Order, parent: int | None) -> None:
    """Do what the program `flwr-clientapp` does; end with the process `parent` if it is given."""
    run_clientapp(
        runtime_api_address=order.address,
        token=order.token,
        insecure=not order.secure,
        certificates=validate_and_resolve_root_certificates(order.ca, not order.secure),
        parent_pid=parent,
        runtime_dependency_install=False,
    )


def carry_out_all(link: socket.socket, parent: int) -> None:
    """Carry out the orders that come through a socket, until it is closed.

    The app is imported once, and what it caches lasts.
    """
    start_parent_process_monitor(parent)
    stock = import_module("flwr.supernode.runtime.run_clientapp")
    setattr(stock, "flwr_exit", end_of_task)  # noqa: B010
    while isinstance(order := receive(link), Order):
        carry_out(order, parent=None)


def end_of_task(code: int, *words: Any, **options: Any) -> None:
    """Do what Flower does at the end of a ClientApp's process, without ending it."""
    trigger_exit_handlers(run_before_force_exit=True)
    trigger_exit_handlers(run_before_force_exit=False)
