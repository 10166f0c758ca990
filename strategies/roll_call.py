"""The roll call: who is there, with which partition of the data, and whether it can work at all."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedivon_app.core.settings import Settings
from fedivon_app.strategies.replies import reason, record_of

log = logging.getLogger("fedivon")
PAUSE = 0.5  # seconds between two looks at who is there


class RunError(RuntimeError):
    """A run that cannot go on; its text says in which round, by whose fault and why."""


@dataclass(frozen=True)
class Node:
    """A node as it answered the roll call."""

    node_id: int
    partition: int
    num_train: int
    num_test: int
    name: str = ""  # of the site, where its node config says it

    def __str__(self) -> str:
        return f"partition {self.partition}" + (f" ({self.name})" if self.name else "")


class RollCall:
    """The nodes by partition id, asked once each, when they appear."""

    def __init__(self, settings: Settings, shape: tuple[int, ...], num_classes: int | None):
        self.settings = settings
        self.shape = shape
        self.num_classes = num_classes
        self.nodes: dict[int, Node] = {}
        self.refused: dict[int, str] = {}
        self.replaced: set[int] = (
            set()
        )  # ids of nodes that came back with another; Flower lists them for a while
        self.assembled = False

    def assemble(self, grid: Grid, content: RecordDict) -> None:
        """The first call: waits for the nodes, and does not go on with one that cannot work."""
        wait_for_nodes(grid, self.settings)
        self.call(grid, content, 0)
        if self.refused:
            raise RunError("\n".join(self.refused.values()))
        if not self.nodes:
            raise RunError("no node answered the roll call; the nodes' own logs say why")
        if (count := self.settings.clients_per_round) and count > len(self.nodes):
            raise RunError(
                f"clients_per_round is {count}, but the federation has {len(self.nodes)} clients; sample fewer"
            )
        self.assembled = True
        sizes = [node.num_train for node in self.nodes.values()]
        log.info(
            "%d clients with %d to %d examples, %d in all",
            len(sizes),
            min(sizes),
            max(sizes),
            sum(sizes),
        )

    def who(self, partition: int) -> str:
        """What the log calls a client."""
        return str(self.nodes.get(partition, f"partition {partition}"))

    def call(self, grid: Grid, content: RecordDict, server_round: int) -> None:
        """Forgets the nodes that are gone and asks the new ones."""
        present = set(grid.get_node_ids())
        for node in self.nodes.values():
            if node.node_id not in present:
                log.warning("round %d: node %d of %s is gone", server_round, node.node_id, node)
        self.nodes = {
            partition: node for partition, node in self.nodes.items() if node.node_id in present
        }
        self.refused = {node_id: why for node_id, why in self.refused.items() if node_id in present}
        self.replaced &= present
        known = {node.node_id for node in self.nodes.values()} | set(self.refused) | self.replaced
        if newcomers := sorted(present - known):
            messages = [Message(content, node_id, MessageType.QUERY) for node_id in newcomers]
            replies = grid.send_and_receive(messages, timeout=self.settings.server.round_timeout)
            self._enter(newcomers, replies, server_round)

    def _enter(self, asked: Iterable[int], replies: Iterable[Message], server_round: int) -> None:
        answered = set()
        for message in replies:
            node_id = message.metadata.src_node_id
            if message.has_error():
                if (
                    node_id in asked
                ):  # what Flower says of a node that is gone comes from nobody; its silence counts
                    answered.add(node_id)
                    words = server_round, node_id, reason(message)
                    log.warning("round %d: node %d cannot answer the roll call: %s", *words)
                continue
            answered.add(node_id)
            try:
                properties = _properties(message)
            except ValueError as error:
                log.warning(
                    "round %d: node %d cannot answer the roll call: %s",
                    server_round,
                    node_id,
                    error,
                )
                continue
            partition = properties["partition-id"]
            if fault := self._fault(partition, properties):
                self.refused[node_id] = f"partition {partition}: {fault}"
                log.warning(
                    "round %d: node %d cannot take part: %s",
                    server_round,
                    node_id,
                    self.refused[node_id],
                )
            else:
                if partition in self.nodes:
                    self.replaced.add(self.nodes[partition].node_id)
                sizes = properties["num-train"], properties["num-test"]
                self.nodes[partition] = Node(node_id, partition, *sizes, properties.get("name", ""))
                if self.assembled:
                    log.info(
                        "round %d: node %d joins as %s",
                        server_round,
                        node_id,
                        self.nodes[partition],
                    )
        for node_id in sorted(set(asked) - answered):
            log.warning("round %d: node %d did not answer the roll call", server_round, node_id)
        self.nodes = dict(sorted(self.nodes.items()))

    def _fault(self, partition: int, properties: dict[str, Any]) -> str | None:
        if "error" in properties:
            return properties["error"]
        holder = self.nodes.get(partition)
        name = properties.get("name", "")
        if holder and (
            not self.assembled or name != holder.name
        ):  # else it is one that came back with a new id
            return f"two nodes ask for it (node {holder.node_id} has it); give each a partition-id of its own"
        if self.shape and tuple(properties["shape"]) != self.shape:
            return f"its inputs have shape {tuple(properties['shape'])}, the server's model takes {self.shape}"
        if self.num_classes is not None and properties["num-classes"] > self.num_classes:
            return (
                f"it has {properties['num-classes']} classes, the server's model {self.num_classes}"
            )
        return None


def _properties(message: Message) -> dict[str, Any]:
    """What a node says of itself: its partition and, unless an error keeps it from working, its data."""
    properties = dict(record_of(message, "properties", ConfigRecord))
    data = (
        {}
        if "error" in properties
        else {"num-train": int, "num-test": int, "num-classes": int, "shape": list}
    )
    for name, kind in {"partition-id": int, **data}.items():
        if not isinstance(value := properties.get(name), kind) or (kind is int and value < 0):
            raise ValueError(
                f"its {name} is {value}; is it a node of this app, and of the server's version?"
            )
    return properties


def wait_for_nodes(grid: Grid, settings: Settings) -> int:
    """Waits until the federation is complete and says its size: `data.clients`, or, without it, what has come."""
    wanted = settings.data.clients
    limit = time.monotonic() + settings.server.node_timeout
    count = len(list(grid.get_node_ids()))
    before = -1
    while count < (wanted or 1) or (wanted is None and count != before):
        if time.monotonic() > limit:
            raise RunError(
                f"the federation has {count} nodes after {settings.server.node_timeout:g} s, and data.clients asks for "
                f"{wanted or 'at least 1'}: start more nodes (in a simulation --federation-config "
                f"'num-supernodes={wanted or 2}', which `fedivon run` does by itself), or lower data.clients"
            )
        before = count
        time.sleep(PAUSE)
        count = len(list(grid.get_node_ids()))
    return count
