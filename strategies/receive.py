"""Waiting for replies: for all of them, for as long as a round may take, or for a quorum."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from flwr.app import Message
from flwr.serverapp import Grid

SHORTEST = 0.01  # seconds between two looks
LONGEST = 0.125
SHARE = 0.2  # of the time waited since something came, which the next pause takes


@runtime_checkable
class Attentive(Protocol):
    """A grid that knows by itself when a reply comes, so that nobody has to look for it."""

    def rest(self, seconds: float) -> None:
        """Return when something has come since the last look, or after so many seconds."""


def gather(
    grid: Grid,
    messages: Iterable[Message],
    timeout: float,
    quorum: int | None = None,
    grace: float = 0.0,
) -> Iterator[Message]:
    """Yield the replies that come within `timeout` seconds, each as it arrives.

    With a quorum the wait ends `grace` seconds after that many replies which are no errors. Nobody
    has to hold all replies, as Flower's `send_and_receive` does. Who answers later than that is as
    one whose reply got lost: nobody will fetch it. A look costs the other side something, so that
    they become rarer the longer nothing comes.
    """
    rest = grid.rest if isinstance(grid, Attentive) else time.sleep
    waiting = {message_id for message_id in grid.push_messages(messages) if message_id}
    end = time.monotonic() + timeout
    good = 0
    last = time.monotonic()  # when something came
    reached = quorum is None
    while waiting and time.monotonic() < end:
        arrived = list(grid.pull_messages(waiting))
        if arrived:
            last = time.monotonic()
        while arrived:
            message = arrived.pop()
            waiting.discard(message.metadata.reply_to_message_id)
            good += not message.has_error()
            yield message
        if quorum is not None and not reached and good >= quorum:
            reached = True
            end = min(end, time.monotonic() + grace)
        elif waiting:
            rest(pause_after(time.monotonic() - last))


def pause_after(waited: float) -> float:
    """Return the seconds until the next look, when nothing has come for so many."""
    return min(max(SHARE * waited, SHORTEST), LONGEST)
