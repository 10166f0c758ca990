"""Replies whose arrays are still on their way to the SuperLink.

A reply is seen there before its arrays have come, the sooner somebody looks the more often. Flower
asks for an array that is not there again after a second, and a round of small models takes less.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module

from fedivon_app.node.flower import Name

AGAIN = 0.05  # seconds until the second question; each wait after it is twice the one before
PULL = Name("flwr.superlink.grid.http_grid", "pull_objects", ("initial_backoff",), more=True)


def ask_again_sooner() -> None:
    """Let Flower's grid ask for arrays again soon.

    Do nothing where no such grid is in use, as in a simulation, or flwr has no such name.
    """
    if PULL.module not in sys.modules or PULL.complaint():
        return
    grid = import_module(PULL.module)
    if not isinstance(grid.pull_objects, partial):
        setattr(grid, PULL.name, partial(grid.pull_objects, initial_backoff=AGAIN))
