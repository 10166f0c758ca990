"""The roll call: who is there, with which partition of the data, and whether it can work at all."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedivon_app.core.errors import BadReply, RunError
from fedivon_app.core.network import Architecture
from fedivon_app.core.settings import AnySettings
from fedivon_app.strategies.receive import gather
from fedivon_app.strategies.replies import malformed, reason, record_of

log = logging.getLogger("fedivon")
PAUSE = 0.5  # seconds between two looks at who is there
FEW_EXAMPLES = 1000  # of a client, which can hardly be hidden and learned from
MOST_NAMED = 5  # of many clients of which the same is to be said


@dataclass(frozen=True)
class Properties:
    """What a node says of itself; `error` is what keeps it from working."""

    partition: int
    name: str = ""  # of the site, where its node config says it
    error: str = ""
    num_train: int = 0
    num_test: int = 0
    num_classes: int = 0
    shape: tuple[int, ...] = ()
    frozen: str = ""  # the digest of what its network does not learn

    @classmethod
    def of(cls, message: Message) -> Properties:
        """Read a node's answer; one that is none is a BadReply."""
        told = dict(record_of(message, "properties", ConfigRecord))
        wanted: dict[str, type] = {"partition-id": int}
        if "error" not in told:
            wanted |= {"num-train": int, "num-test": int, "num-classes": int, "shape": list}
        values: dict[str, Any] = {}
        for key, kind in wanted.items():
            value = told.get(key)
            if not isinstance(value, kind) or (isinstance(value, int) and value < 0):
                raise malformed(
                    f"its {key} is {value!r}; "
                    "is it a node of this app, and of the server's version?"
                )
            values[key.replace("-", "_")] = value
        return cls(
            partition=values.pop("partition_id"),
            name=str(told.get("name", "")),
            error=str(told.get("error", "")),
            shape=tuple(values.pop("shape", ())),
            frozen=str(told.get("frozen", "")),
            **values,
        )


@dataclass(frozen=True)
class Node:
    """A node as it answered the roll call."""

    node_id: int
    partition: int
    num_train: int
    num_test: int
    name: str = ""

    def __str__(self) -> str:
        return f"partition {self.partition}" + (f" ({self.name})" if self.name else "")


class RollCall:
    """The nodes by partition id, asked once each, when they appear.

    `replaced` are ids of nodes that came back with another; Flower lists them for a while.
    `unable` says why nodes could not answer, as a site does that refuses the code. `spare`
    are those of the refused ones whose partition is beyond `data.clients`, as comes about when
    nodes are counted while they still arrive. `sizes` are the numbers of training examples that the
    partitions told when they were first called: they stay, whatever a node tells later.
    """

    def __init__(self, settings: AnySettings, architecture: Architecture):
        self.settings = settings
        self.architecture = architecture
        self.nodes: dict[int, Node] = {}
        self.refused: dict[int, str] = {}
        self.unable: dict[int, str] = {}
        self.spare: set[int] = set()
        self.sizes: dict[int, int] = {}
        self.replaced: set[int] = set()
        self.assembled = False

    def assemble(self, grid: Grid, content: RecordDict) -> None:
        """Wait for the nodes and call them for the first time.

        A run does not begin with a node that cannot work. One that is left over, when all clients
        of the run are there, is told and left out.
        """
        wait_for_nodes(grid, self.settings)
        self._call_until_complete(grid, content)
        if set(self.refused) - self.spare or self._vacant():
            raise RunError("\n".join(self.refused.values()))
        if not self.nodes:
            why = "; ".join(dict.fromkeys(self.unable.values())) or "the nodes' own logs say why"
            raise RunError(f"no node answered the roll call: {why}")
        if (count := self.settings.clients_per_round) and count > len(self.nodes):
            raise RunError(
                f"clients_per_round is {count}, but the federation has {len(self.nodes)} clients; "
                "sample fewer"
            )
        self.assembled = True
        for node_id in sorted(self.spare):
            log.warning(
                "the run begins without node %d, for its %d clients are there; "
                "to have it take part as well, start the run again",
                node_id,
                len(self.nodes),
            )
        sizes = [node.num_train for node in self.nodes.values()]
        least = min(sizes)
        most = max(sizes)
        each = f"{least} to {most}" if least < most else f"{least}"
        log.info("%d clients with %s examples each, %d in all", len(sizes), each, sum(sizes))
        if self.settings.privacy.is_private and least < FEW_EXAMPLES:
            few = [str(node) for node in self.nodes.values() if node.num_train < FEW_EXAMPLES]
            log.warning(
                "differential privacy is hardly of use with fewer than %d examples a client: the "
                "noise drowns what they say. This applies to %s%s",
                FEW_EXAMPLES,
                ", ".join(few[:MOST_NAMED]),
                f" and {len(few) - MOST_NAMED} more" if len(few) > MOST_NAMED else "",
            )

    def _call_until_complete(self, grid: Grid, content: RecordDict) -> None:
        """Call the nodes, and those that come while one holds the place of another that is awaited.

        Nodes come in any order, so that those that were counted need not have the first partitions.
        """
        limit = time.monotonic() + self.settings.server.node_timeout
        while True:
            asked = set(grid.get_node_ids())
            self.call(grid, content, 0)
            if set(self.refused) != self.spare or not (vacant := self._vacant()):
                return
            log.info("waiting for the nodes of partitions %s", ", ".join(map(str, vacant)))
            while set(grid.get_node_ids()) == asked:
                if time.monotonic() > limit:
                    return
                time.sleep(PAUSE)

    def _vacant(self) -> list[int]:
        """Return the partitions that nobody has, if there is a node that has one beyond them."""
        if not self.spare:
            return []
        return [p for p in range(self.settings.data.clients or 0) if p not in self.nodes]

    def _is_beyond(self, partition: int) -> bool:
        """Tell whether a common source is divided among too few clients to have this partition."""
        data = self.settings.data
        return data.source != "nodes" and data.clients is not None and partition >= data.clients

    def who(self, partition: int) -> str:
        """Return what the log calls a client."""
        return str(self.nodes.get(partition, f"partition {partition}"))

    def call(self, grid: Grid, content: RecordDict, server_round: int) -> None:
        """Forget the nodes that are gone, and ask the new ones."""
        present = set(grid.get_node_ids())
        for node in self.nodes.values():
            if node.node_id not in present:
                log.warning("round %d: node %d of %s is gone", server_round, node.node_id, node)
        self.nodes = {p: node for p, node in self.nodes.items() if node.node_id in present}
        self.refused = {node_id: why for node_id, why in self.refused.items() if node_id in present}
        self.spare &= present
        self.replaced &= present
        known = {node.node_id for node in self.nodes.values()} | set(self.refused) | self.replaced
        if newcomers := sorted(present - known):
            messages = [Message(content, node_id, MessageType.QUERY) for node_id in newcomers]
            replies = gather(grid, messages, self.settings.server.round_timeout)
            self._enter(newcomers, replies, server_round)

    def _enter(self, asked: Collection[int], replies: Iterable[Message], server_round: int) -> None:
        """Take in the answers of nodes that were asked."""
        cannot = "round %d: node %d cannot answer the roll call: %s"
        answered = set()
        for message in replies:
            node_id = message.metadata.src_node_id
            if message.has_error():
                if node_id in asked:  # Flower's word of a node that is gone comes from nobody
                    answered.add(node_id)
                    self.unable[node_id] = reason(message)
                    log.warning(cannot, server_round, node_id, self.unable[node_id])
                continue
            answered.add(node_id)
            try:
                self._admit(node_id, Properties.of(message), server_round)
            except BadReply as error:
                log.warning(cannot, server_round, node_id, error)
        for node_id in sorted(set(asked) - answered):
            log.warning("round %d: node %d did not answer the roll call", server_round, node_id)
        self.nodes = dict(sorted(self.nodes.items()))

    def _admit(self, node_id: int, told: Properties, server_round: int) -> None:
        """Let a node take part, unless something keeps it from that."""
        if why := self._refusal(told):
            self.refused[node_id] = f"partition {told.partition}: {why}"
            if self._is_beyond(told.partition):
                self.spare.add(node_id)
            log.warning(
                "round %d: node %d cannot take part: %s",
                server_round,
                node_id,
                self.refused[node_id],
            )
            return
        if told.partition in self.nodes:
            self.replaced.add(self.nodes[told.partition].node_id)
        node = Node(
            node_id=node_id,
            partition=told.partition,
            num_train=told.num_train,
            num_test=told.num_test,
            name=told.name,
        )
        self.nodes[told.partition] = node
        self.sizes.setdefault(told.partition, told.num_train)
        if self.assembled:
            log.info("round %d: node %d joins as %s", server_round, node_id, node)

    def _refusal(self, told: Properties) -> str:
        """Return why a node cannot take part, or nothing."""
        if told.error:
            return told.error
        holder = self.nodes.get(told.partition)
        came_back = self.assembled and holder is not None and holder.name == told.name
        if holder and not came_back:
            return (
                f"two nodes ask for it (node {holder.node_id} has it); "
                "give each a partition-id of its own"
            )
        shape = self.architecture.shape
        if shape and told.shape != shape:
            return f"its inputs have shape {told.shape}, the server's model takes {shape}"
        if told.frozen != self.architecture.frozen:
            return (
                "its network's frozen weights are others than the server's: both need the same "
                "file model.weights, and the same version of the app"
            )
        num_classes = self.architecture.num_classes
        if num_classes is not None and told.num_classes > num_classes:
            return f"it has {told.num_classes} classes, the server's model {num_classes}"
        return ""


def wait_for_nodes(grid: Grid, settings: AnySettings) -> int:
    """Wait until the federation is complete, and return its size.

    That is `data.clients`, or, where the settings do not say, as many nodes as have come.
    """
    wanted = settings.data.clients
    limit = time.monotonic() + settings.server.node_timeout
    count = len(list(grid.get_node_ids()))
    before = -1
    while count < (wanted or 1) or (wanted is None and count != before):
        if time.monotonic() > limit:
            raise RunError(
                f"the federation has {count} nodes after {settings.server.node_timeout:g} s, and "
                f"data.clients asks for {wanted or 'at least 1'}: start more nodes (in a "
                f"simulation --federation-config 'num-supernodes={wanted or 2}', which `fedivon "
                "run` does by "
                "itself), or lower data.clients"
            )
        before = count
        time.sleep(PAUSE)
        count = len(list(grid.get_node_ids()))
    return count
