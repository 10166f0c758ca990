"""Many simulated clients on a few of Flower's nodes.

Every simulated node costs Flower something all the time, whether it is asked or not. So a
simulation has as many as keep its workers busy, and a message says which client the node is to
play. For the server nothing differs: its grid has a node for each client.

Messages of one and the same content, such as the questions of the roll call, go to a node together.
What a client has in Flower's state goes with its messages, so that it follows the client from node
to node; most of what clients keep is on disk, by partition.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedivon_app.federation.own_grid import OwnGrid, number

CLIENTS = "simulated-clients"  # a key of the run config, and the record that says whom to play
FIRST_CLIENT = 1000  # the server's node ids are no partition numbers, and not taken for such
STATE = "state/"  # before the names of records that are a client's state
IN_STORE = 2  # messages to a node that Flower has at a time: one at work, and one that waits
FORGET = 3600.0  # seconds after which nobody looks for a late reply any more

Call = Callable[[Message, Context], Message]
Record = ArrayRecord | ConfigRecord | MetricRecord


def play(message: Message, context: Context, call: Call) -> Message:
    """Let the ClientApp play the clients that a message is for; it is one of Flower's mods.

    A message that names none is for the node itself, as that of a site is.
    """
    whom = message.content.get(CLIENTS)
    if not isinstance(whom, ConfigRecord):
        return call(message, context)
    (clients,) = _whole_numbers(whom, "of")
    records = dict(message.content)
    message.content = RecordDict({n: one for n, one in records.items() if not n.startswith(STATE)})
    told = RecordDict()
    for partition in _whole_numbers(whom, "partitions"):
        own = _as_client(context, partition, clients)
        own.state.update(_inside(records, f"{STATE}{partition}/"))
        reply = call(message, own)
        told.update({f"{partition}/{name}": one for name, one in reply.content.items()})
        told.update({f"{STATE}{partition}/{name}": one for name, one in own.state.items()})
    return Message(told, reply_to=message)


def _inside(records: Mapping[str, Record], place: str) -> dict[str, Record]:
    """The records whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(place): one for name, one in records.items() if name.startswith(place)
    }


def _whole_numbers(record: ConfigRecord, name: str) -> list[int]:
    values = record[name]
    assert isinstance(values, list)
    return [int(value) for value in values]


def _as_client(context: Context, partition: int, clients: int) -> Context:
    """The context of a client that a node plays: with its partition, and nothing of others."""
    return Context(
        run_id=context.run_id,
        node_id=context.node_id,
        node_config={"partition-id": partition, "num-partitions": clients},
        state=RecordDict(),
        run_config=context.run_config,
    )


@dataclass(frozen=True)
class _Parcel:
    """Messages to clients that go to a node as one, and when they went there."""

    messages: Sequence[Message]
    node: int
    sent: float

    def sealed(self, clients: int, states: Mapping[int, Mapping[str, Record]]) -> Message:
        """Return the message to the node, of so many clients; the records are not copied."""
        first = self.messages[0]
        partitions = [_partition(message) for message in self.messages]
        content = RecordDict(dict(first.content))
        content[CLIENTS] = ConfigRecord({"partitions": partitions, "of": [clients]})
        for partition in partitions:
            for name, record in states.get(partition, {}).items():
                content[f"{STATE}{partition}/{name}"] = record
        return Message(content, self.node, first.metadata.message_type, ttl=first.metadata.ttl)

    def opened(self, reply: Message) -> Iterator[_Opened]:
        """Give a node's reply as those of the clients."""
        for message in self.messages:
            if reply.has_error():
                yield _Opened(Message(reply.error, reply_to=message))
                continue
            own = RecordDict(_inside(reply.content, f"{_partition(message)}/"))
            state = _inside(reply.content, f"{STATE}{_partition(message)}/")
            yield _Opened(Message(own, reply_to=message), state)


@dataclass(frozen=True)
class _Opened:
    """A client's reply, and the state that it left; None where it has failed."""

    reply: Message
    state: Mapping[str, Record] | None = None


def _partition(message: Message) -> int:
    return message.metadata.dst_node_id - FIRST_CLIENT


class SharedNodes(OwnGrid):
    """A grid of so many clients, which the nodes of Flower's own grid play in turn."""

    def __init__(self, grid: Grid, clients: int):
        self._grid = grid
        self._clients = range(FIRST_CLIENT, FIRST_CLIENT + clients)
        self._numbers = itertools.count()
        self._queue: deque[list[Message]] = deque()
        self._away: dict[str, _Parcel] = {}  # by Flower's ids of their messages
        self._late: dict[str, _Parcel] = {}  # those of earlier batches, which were given up
        self._replies: dict[str, Message] = {}
        self._states: dict[int, Mapping[str, Record]] = {}  # Flower's state of clients

    def set_run(self, run: Any) -> None:
        """Pass the run on."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """Flower's account of the run."""
        return self._grid.run

    def get_node_ids(self) -> list[int]:
        """Return the ids of all clients, as soon as there are nodes to play them."""
        return list(self._clients) if self._nodes() else []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send a batch of messages; what is still waiting of an earlier one is given up."""
        batch = list(messages)
        self._late |= self._away
        self._away = {}
        self._replies = {}
        names = [number(message, f"message-{next(self._numbers)}") for message in batch]
        self._queue = deque(_bundles(batch, len(self._nodes())))
        self._hand_out()
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have come to these messages.

        Late replies to earlier ones are fetched as well, for Flower would look through them ever
        after, and thrown away.
        """
        oldest = time.monotonic() - FORGET
        self._late = {name: one for name, one in self._late.items() if one.sent > oldest}
        for reply in self._grid.pull_messages([*self._away, *self._late]):
            name = reply.metadata.reply_to_message_id
            self._late.pop(name, None)
            if parcel := self._away.pop(name, None):
                for one in parcel.opened(reply):
                    self._replies[one.reply.metadata.reply_to_message_id] = one.reply
                    if one.state is not None:
                        self._states[one.reply.metadata.src_node_id - FIRST_CLIENT] = one.state
        self._hand_out()
        return [self._replies.pop(name) for name in message_ids if name in self._replies]

    def _nodes(self) -> list[int]:
        return sorted(self._grid.get_node_ids())

    def _hand_out(self) -> None:
        """Give Flower as many of the waiting messages as its nodes may have."""
        if not self._queue:
            return
        load = dict.fromkeys(self._nodes(), 0)
        for parcel in self._away.values():
            load[parcel.node] += 1
        for count in range(IN_STORE):
            for node in (node for node, has in load.items() if has <= count):
                if not self._queue:
                    return
                parcel = _Parcel(self._queue.popleft(), node, time.monotonic())
                (name,) = self._grid.push_messages(
                    [parcel.sealed(len(self._clients), self._states)]
                )
                self._away[name] = parcel
                load[node] += 1


def _bundles(batch: Iterable[Message], nodes: int) -> list[list[Message]]:
    """Put messages of the same content together, a share of them for each node."""
    alike: dict[int, list[Message]] = {}
    for message in batch:
        alike.setdefault(id(message.content), []).append(message)
    bundles = []
    for several in alike.values():
        size = ceil(len(several) / nodes)
        bundles += [several[k : k + size] for k in range(0, len(several), size)]
    return bundles
