"""What is worth beginning before the modules of a command are imported."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fedivon_app.cli.commands import INLINE, command_in
from fedivon_app.federation.fork_server import start_early

NO_RUN = {"-h", "--help", "--plan", "--list", "--superlink"}  # with these nothing is simulated here


def begin(words: Sequence[str]) -> None:
    """Start the inline engine's imports, if these words of a command line will want them.

    They take as long as those of the command, and a second core has nothing to do.
    """
    if NO_RUN.isdisjoint(words) and not os.environ.get("FEDIVON_SUPERLINK"):
        before = dict(zip(words[1:], words, strict=False))
        chosen = before.get("inline") == "--engine" or "--engine=inline" in words
        by_default = command_in(words) in INLINE and "flower" not in words
        if chosen or by_default:
            start_early()
