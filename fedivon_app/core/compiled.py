"""Loops over numpy arrays that numba compiles, where it is installed: the extra `fast`.

What was compiled is kept in a folder, from which the next process takes it: that of the module's
byte code or, where nothing can be written there, the user's own. Where neither can be, every
process compiles anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")

# A product and a sum are rounded once, as torch does it too. What is kept knows nothing of these:
# who changes them has to change, or to touch, the modules with loops as well.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}


def warm_up() -> None:
    """Let numba make itself ready, which takes a third of a second in every new process."""
    numba.njit("int64(int64)")(lambda value: value)


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that a loop of the same module may call."""
    compiled: Callable[P, R] = numba.njit(**_OPTIONS)(function)
    return compiled


class Loop(Generic[P, R]):
    """A function that is compiled when it is first called with arguments of such types.

    None counts as a type, and what is done only where an argument is None, or only where it is not,
    is compiled for that alone.
    """

    def __init__(self, function: Callable[P, R]):
        self._function = function
        self._compiled = self._compile(kept=True)

    def _compile(self, kept: bool) -> Callable[P, R]:
        try:
            compiled: Callable[P, R] = numba.njit(cache=kept, **_OPTIONS)(self._function)
        except RuntimeError:  # there is no folder that could be written to
            if not kept:
                raise
            return self._compile(kept=False)
        return compiled

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it, with arguments by their places."""
        try:
            return self._compiled(*args, **kwargs)
        except (OSError, EOFError):  # of the folder, before anything was computed: the disk is full
            self._compiled = self._compile(kept=False)
            return self._compiled(*args, **kwargs)
