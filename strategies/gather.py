"""Waiting for replies: for all of them, for as long as a round may take, or for a quorum and a little longer."""

from __future__ import annotations

import time
from collections.abc import Iterable

from flwr.app import Message
from flwr.serverapp import Grid

PAUSE = 0.5  # seconds between two looks


def gather(
    grid: Grid, messages: Iterable[Message], timeout: float, quorum: int | None = None, grace: float = 0.0
) -> list[Message]:
    """The replies that came within `timeout` seconds, or within `grace` after the `quorum`-th that is no error.

    Who answers later than that is as one whose reply got lost: nobody will fetch it.
    """
    if quorum is None:
        return list(grid.send_and_receive(messages, timeout=timeout))
    waiting = {message_id for message_id in grid.push_messages(messages) if message_id}
    end, replies = time.monotonic() + timeout, []
    reached = False
    while waiting and time.monotonic() < end:
        arrived = list(grid.pull_messages(waiting))
        waiting -= {message.metadata.reply_to_message_id for message in arrived}
        replies += arrived
        if not reached and sum(not message.has_error() for message in replies) >= quorum:
            reached, end = True, min(end, time.monotonic() + grace)
        elif waiting:
            time.sleep(PAUSE)
    return replies
