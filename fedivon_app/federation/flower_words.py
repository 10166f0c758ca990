"""What Flower says, as a person is to read it: without colours, boxes and words of its own."""

from __future__ import annotations

import re

PREFIX = "Simulation failed with exception: "  # stands before a run's own words


def plain(text: str) -> str:
    """Return the text without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def unboxed(text: str) -> str:
    """Return the text without colours, and without the box that `flwr` draws around an error."""
    return re.sub(r"╭[^╮]*╮|[\u2500-\u257f]", "", plain(text)).strip()


def own_words(details: str) -> str:
    """Return why a run failed in its own words, without those that Flower puts before them."""
    return unboxed(details).removeprefix(PREFIX)
