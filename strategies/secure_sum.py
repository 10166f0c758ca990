"""One secure sum over a grid's nodes: the server's messages, and who dropped out of it when."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedivon_app.core.errors import BadReply, Fault, FaultKind
from fedivon_app.core.run_settings import ServerSettings
from fedivon_app.core.secure.fixed_point import Layout, Summed, Words
from fedivon_app.core.secure.joining import Joint
from fedivon_app.core.secure.messages import (
    Boxes,
    Roster,
    RoundKeys,
    Session,
    Survivors,
    Told,
    Value,
)
from fedivon_app.core.text import one_line
from fedivon_app.strategies.receive import gather
from fedivon_app.strategies.replies import malformed, number_of, reason, record_of, to_numpy
from fedivon_app.strategies.roll_call import Node

SECURE = "secure"  # the record of a message that belongs to a secure sum
NARROW, WIDE = "narrow", "wide"  # the arrays of a masked vector
VECTOR = "masked"  # the record in which they go
SPENT = ("epsilon", "noise")  # of its privacy, what a private client tells
A = TypeVar("A")
V = TypeVar("V", bound=Value)


@dataclass(frozen=True)
class Answers(Generic[A]):
    """What clients answered, by partition, and why others did not."""

    found: dict[int, A]
    missing: dict[int, Fault]


class SecureSum:
    """A sum over some nodes, from their keys to what it says.

    `begin` asks for keys and passes on shares, the messages of the task itself go with `boxes`, and
    `end` takes the masks off what came in. `dropped` says whose vectors are missing and why.
    `num_bytes` are those that each client sent and was sent for the sum, its masked vector aside,
    and `spent` is what a private client tells of its privacy in the open.
    Of the shares, as many are awaited as are needed. `client_state` is the folder in which
    simulated clients keep things.
    """

    def __init__(
        self,
        grid: Grid,
        session: Session,
        nodes: Sequence[Node],
        server: ServerSettings,
        client_state: str | None = None,
    ):
        self.grid = grid
        self.session = session
        self.nodes = {node.partition: node for node in nodes}
        self.server = server
        self.client_state = client_state
        self.joint = Joint(session, Roster(keys={}))
        self.boxes: dict[int, Boxes] = {}
        self.dropped: dict[int, Fault] = {}
        self._partition_of = {node.node_id: node.partition for node in nodes}
        self.vector_bytes: dict[int, int] = {}
        self.spent: dict[int, dict[str, float]] = {}
        self.num_bytes = dict.fromkeys(self.nodes, 0)

    @property
    def clients(self) -> int:
        """Return how many clients told their keys: all layouts are made for as many."""
        return len(self.joint.roster.keys)

    def begin(self) -> None:
        """Ask for keys, and pass on the shares that clients seal for each other."""
        keys = self._ask("keys", dict.fromkeys(self.nodes), RoundKeys)
        self.dropped |= keys.missing
        self.joint = Joint(self.session, Roster(keys=keys.found))
        boxes = self._ask("shares", dict.fromkeys(keys.found, self.joint.roster), Boxes)
        self.dropped |= boxes.missing
        self.boxes = self.joint.boxes_for(boxes.found)
        self.joint.check(self.boxes, "sealed their shares")

    def record(self, partition: int, largest: int = 0) -> ConfigRecord:
        """Return what goes with the message that asks a client for its masked vector."""
        return self._record("masked", partition, self.boxes[partition], {"largest": largest})

    def end(self, replies: Iterable[Message], layout: Layout) -> Summed:
        """Add up the masked vectors as they come, ask for the shares, and return the sum."""
        total = layout.zeros()

        def take(message: Message) -> int:
            words = _words(message)
            spent = _spent(message)
            total.add(words)
            self.spent[self._partition_of[message.metadata.src_node_id]] = spent
            return words.num_bytes

        answers = self._read(replies, self.boxes, take)
        self.dropped |= answers.missing
        self.vector_bytes = answers.found
        there = self.vector_bytes
        self.joint.check(there, "sent their masked vectors")
        survivors = Survivors(numbers=frozenset(there))
        told = self._ask(
            "unmask", dict.fromkeys(there, survivors), Told, quorum=self.joint.threshold, grace=0
        )
        words = self.joint.unmasked(total, cohort=self.boxes, survivors=there, told=told.found)
        return self.joint.read(words, layout, there)

    @property
    def survivors(self) -> list[int]:
        """Return whose vectors are in the sum, in order."""
        return sorted(self.vector_bytes)

    def _record(
        self, stage: str, partition: int, body: Value | None, more: Mapping[str, int] | None = None
    ) -> ConfigRecord:
        text = "" if body is None else body.to_json()
        self.num_bytes[partition] += len(text)
        values = {"stage": stage, "session": self.session.to_json(), "body": text}
        if self.client_state is not None:
            values["client-state"] = self.client_state
        return ConfigRecord({**values, **(more or {})})

    def _ask(
        self,
        stage: str,
        bodies: Mapping[int, Value | None],
        kind: type[V],
        *,
        quorum: int | None = None,
        grace: float | None = None,
    ) -> Answers[V]:
        """Return what clients answer at a stage of the sum, by the settings' quorum or another."""
        messages = []
        for partition, body in bodies.items():
            content = RecordDict({SECURE: self._record(stage, partition, body)})
            messages.append(Message(content, self.nodes[partition].node_id, MessageType.QUERY))

        def read(message: Message) -> V:
            text = str(record_of(message, SECURE, ConfigRecord).get("body"))
            self.num_bytes[self._partition_of[message.metadata.src_node_id]] += len(text)
            return kind.from_json(text)

        replies = gather(
            self.grid,
            messages,
            self.server.round_timeout,
            quorum=self.server.quorum if quorum is None else quorum,
            grace=self.server.grace if grace is None else grace,
        )
        return self._read(replies, bodies, read)

    def _read(
        self, replies: Iterable[Message], asked: Collection[int], read: Callable[[Message], A]
    ) -> Answers[A]:
        """Return what the replies of those who were asked say, and why others say nothing."""
        found: dict[int, A] = {}
        missing: dict[int, Fault] = {}
        for message in replies:
            partition = self._partition_of.get(message.metadata.src_node_id)
            if partition not in asked or partition is None:
                continue
            if message.has_error():
                missing[partition] = Fault(FaultKind.CLIENT_ERROR, reason(message))
                continue
            try:
                found[partition] = read(message)
            except BadReply as error:
                missing[partition] = error.fault
            except ValueError as error:  # of another shape or kind than the sum's
                missing[partition] = Fault(FaultKind.MALFORMED, one_line(error))
        for partition in asked:
            if partition not in found and partition not in missing:
                missing[partition] = Fault(FaultKind.NO_REPLY, "no reply in time")
        return Answers(dict(sorted(found.items())), missing)


def _words(message: Message) -> Words:
    """Return the masked vector of a reply."""
    arrays = to_numpy(record_of(message, VECTOR, ArrayRecord))
    if set(arrays) != {NARROW, WIDE}:
        raise malformed(f"the masked vector has the arrays {', '.join(arrays) or 'none'}")
    return Words(arrays[NARROW], arrays[WIDE])


def _spent(message: Message) -> dict[str, float]:
    """Return what a private client says of the privacy that it has spent; others say nothing."""
    metrics = message.content.get("metrics")
    if not isinstance(metrics, MetricRecord):
        return {}
    return {name: number_of(metrics, name) for name in SPENT}
