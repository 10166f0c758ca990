"""Memory that a process has freed but not given back.

A worker of a simulation plays one client after the other, with arrays of other sizes each; glibc's
heap grows with the holes they leave (to 1.9 GB a worker over an evaluation of 1000 clients that
hold 15 MB each, measured). So it is asked to give the holes back after every few messages; other C
libraries do without.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import cache
from itertools import count

MESSAGES = 10  # after which a worker gives back: it takes some milliseconds, and more afterwards
_counted = count(1)


@cache
def _trim() -> Callable[[int], int] | None:
    name = ctypes.util.find_library("c")
    return getattr(ctypes.CDLL(name), "malloc_trim", None) if name else None


def give_back() -> None:
    """Return free pages to the operating system, where the C library can."""
    if (trim := _trim()) is not None:
        trim(0)


def give_back_sometimes() -> None:
    """Return free pages with every tenth call, for whoever calls it after every message."""
    if next(_counted) % MESSAGES == 0:
        give_back()
