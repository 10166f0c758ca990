"""What the grids of this project have in common, under Flower's interface."""

from __future__ import annotations

import time
from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

PAUSE = 0.01  # seconds between two looks for replies


class OwnGrid(Grid):
    """A Grid of which pushing and pulling messages is all that is left to say."""

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send a batch, and return the replies that come in time."""
        missing = set(self.push_messages(messages))
        end = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while missing and (end is None or time.monotonic() < end):
            arrived = list(self.pull_messages(missing))
            missing -= {message.metadata.reply_to_message_id for message in arrived}
            replies += arrived
            time.sleep(0 if arrived else PAUSE)
        return replies


def number(message: Message, name: str) -> str:
    """Give a message an id, as a SuperLink would, and return it."""
    message.metadata.__dict__["_message_id"] = name
    return name
