"""How long an idle node waits before it asks the SuperLink for messages again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SHORTEST = 0.05  # seconds between two questions
LONGEST = 3.0  # which is Flower's own wait, whatever happened before
SHARE = 0.2  # of the time since the last message, which the next wait takes


def idle_wait(since: float) -> float:
    """Return the seconds until the next question, when the last message was so long ago.

    A question costs the SuperLink some ten milliseconds. In the middle of a run the next message
    is near, and after an hour without one it is not.
    """
    return min(max(SHARE * since, SHORTEST), LONGEST)


class Clock:
    """What Flower's loop takes for the module `time`.

    It sleeps no longer than an idle node should, and does something useful before it does.
    """

    def __init__(self, meanwhile: Callable[[], None]):
        self._meanwhile = meanwhile
        self._last = time.monotonic()

    def restart(self) -> None:
        """Note that there was a message just now."""
        self._last = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep for so long, or for as long as an idle node should if that is shorter."""
        self._meanwhile()
        time.sleep(min(seconds, idle_wait(time.monotonic() - self._last)))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)
