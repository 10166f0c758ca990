"""Python's fork server with the app in it, from which the processes of the inline engine come.

It imports the app once and computes nothing: a new process is there in milliseconds, and has no
threads of another's to stumble over. This module imports nothing of the app itself, so that whoever
will need the fork server can start it first and do his own imports meanwhile.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from types import ModuleType

APP = "fedivon_app.federation.preloaded"


def fork_server() -> ForkServerContext:
    """Return the context of processes that have the app imported when they begin."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([APP])
    return context


def start_early() -> None:
    """Let the fork server begin with its imports, and do not wait for it."""
    fork_server()
    forkserver.ensure_running()


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
