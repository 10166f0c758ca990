"""PosteriorStrategy: what every method's server does, under Flower's Strategy interface.

Before round 1 a roll call asks every node for its partition and sizes. A round samples clients by partition id from the
run's seed, sends them the global posterior, drops bad replies by name and reason, and merges the rest in partition
order: one seed, one result, although Flower's node ids are random.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from pydantic import Field

from fedivon_app.core.codec import Codec, Payload, Raw
from fedivon_app.core.metrics import Tally
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import ClientSettings, Section, Settings
from strategies.aggregation import RULES as MERGING
from strategies.aggregation import aggregate
from strategies.weighting import RULES as WEIGHING
from strategies.weighting import weigh

log = logging.getLogger("fedivon")

OnRound = Callable[[int, Payload, dict[str, Any]], None]


class RunError(RuntimeError):
    """A run that cannot go on; its text says in which round, by whose fault and why."""


class MergeSettings(Section):
    """How the clients' posteriors become the server's."""

    rule: Literal[*MERGING] = Field("nwa", description="aggregation rule, see strategies/aggregation.py")
    weighting: Literal[*WEIGHING] = Field("size", description="weighting rule, see strategies/weighting.py")


@dataclass(frozen=True)
class Node:
    """A node as it answered the roll call."""

    node_id: int
    partition: int
    num_train: int
    num_test: int


@dataclass(frozen=True)
class Reply:
    """A good reply of one client."""

    partition: int
    num_examples: int
    payload: Payload
    metrics: dict[str, Any]

    @property
    def posterior(self) -> Posterior:
        return self.payload.posterior


class PosteriorStrategy(Strategy):
    """The shared half of every strategy. A method overrides `merge`, and `initial` where it starts with a precision."""

    Settings: type[Section] = MergeSettings

    def __init__(
        self,
        settings: Settings,
        shape: tuple[int, ...] = (),
        num_classes: int | None = None,
        codec: Codec | None = None,
    ):
        self.settings, self.shape, self.num_classes = settings, tuple(shape), num_classes
        self.codec: Codec = codec or Raw()
        self.nodes: dict[int, Node] = {}
        self.payload: Payload | None = None
        self.record: dict[str, Any] = {}
        self._refused: dict[int, str] = {}
        self._limits: tuple[float, float] | None = None
        self._settings_json = settings.model_dump_json()

    # What a method may override.

    def initial(self, mean: np.ndarray) -> Posterior:
        """The server's posterior before round 1, around the network's initial weights."""
        return Posterior(mean)

    def merge(self, replies: Sequence[Reply], previous: Posterior) -> Posterior:
        """The server's next posterior; here by the rule and the weighting of the settings."""
        posteriors = [reply.posterior for reply in replies]
        return aggregate(self.settings.merge.rule, posteriors, self.weights(replies, previous), previous)

    def state(self) -> dict[str, np.ndarray]:
        """What the strategy itself carries from round to round, for the checkpoint."""
        return {}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Takes back what `state` gave."""

    def weights(self, replies: Sequence[Reply], previous: Posterior) -> np.ndarray:
        posteriors = (reply.posterior for reply in replies)
        return weigh(self.settings.merge.weighting, posteriors, [r.num_examples for r in replies], previous)

    # The roll call.

    def roll_call(self, grid: Grid) -> None:
        """Asks the nodes that have not answered yet who they are; a node that cannot read its data is an error here."""
        known = {node.node_id for node in self.nodes.values()} | set(self._refused)
        present = set(grid.get_node_ids())
        self.nodes = {p: node for p, node in self.nodes.items() if node.node_id in present}
        if not (newcomers := sorted(present - known)):
            return
        content = self._content({"round": 0})
        messages = [Message(content, node_id, MessageType.QUERY) for node_id in newcomers]
        for message in grid.send_and_receive(messages, timeout=self.settings.server.round_timeout):
            if message.has_error():
                log.warning("node %d did not answer the roll call: %s", message.metadata.src_node_id, _reason(message))
                continue
            properties = dict(message.content["properties"])
            node_id = message.metadata.src_node_id
            if fault := self._fault_of_node(properties):
                self._refused[node_id] = fault
                continue
            partition = int(properties["partition-id"])
            self.nodes[partition] = Node(node_id, partition, properties["num-train"], properties["num-test"])
        self.nodes = dict(sorted(self.nodes.items()))

    def _fault_of_node(self, properties: dict[str, Any]) -> str | None:
        name = f"partition {properties['partition-id']}"
        if "error" in properties:
            return f"{name}: {properties['error']}"
        if (other := self.nodes.get(int(properties["partition-id"]))) is not None:
            return f"{name}: two nodes ask for it (node {other.node_id} has it); give each a partition-id of its own"
        if self.shape and tuple(properties["shape"]) != self.shape:
            return f"{name}: its inputs have shape {tuple(properties['shape'])}, the server's model takes {self.shape}"
        if self.num_classes is not None and properties["num-classes"] > self.num_classes:
            return f"{name}: it has {properties['num-classes']} classes, the server's model {self.num_classes}"
        return None

    def assemble(self, grid: Grid) -> None:
        """The first roll call: waits for the nodes, and does not go on with one that cannot work."""
        wait_for_nodes(grid, self.settings)
        self.roll_call(grid)
        if self._refused:
            raise RunError("\n".join(self._refused.values()))
        if not self.nodes:
            raise RunError("no node answered the roll call; the nodes' own logs say why")
        if (count := self.settings.clients_per_round) and count > len(self.nodes):
            raise RunError(
                f"clients_per_round is {count}, but the federation has {len(self.nodes)} clients; sample fewer"
            )
        sizes = [node.num_train for node in self.nodes.values()]
        log.info("%d clients with %d to %d examples, %d in all", len(sizes), min(sizes), max(sizes), sum(sizes))

    # Rounds, in Flower's terms.

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        first_round: int = 1,
        on_round: OnRound | None = None,
    ) -> Result:
        """Runs the rounds from `first_round` to `num_rounds`; `on_round` gets each round's posterior and record."""
        result = Result()
        self.payload = self.codec.decode(_to_numpy(initial_arrays))
        arrays = initial_arrays
        self.assemble(grid)
        for server_round in range(first_round, num_rounds + 1):
            began = time.perf_counter()
            self.record = {"round": server_round}
            messages = self.configure_train(server_round, arrays, train_config or ConfigRecord(), grid)
            merged, metrics = self.aggregate_train(server_round, grid.send_and_receive(messages, timeout=timeout))
            arrays = merged or arrays
            if metrics is not None:
                result.train_metrics_clientapp[server_round] = metrics
            trained = time.perf_counter()
            if messages := list(self.configure_evaluate(server_round, arrays, evaluate_config or ConfigRecord(), grid)):
                scores = self.aggregate_evaluate(server_round, grid.send_and_receive(messages, timeout=timeout))
                if scores is not None:
                    result.evaluate_metrics_clientapp[server_round] = scores
            if evaluate_fn and (scores := evaluate_fn(server_round, arrays)) is not None:
                result.evaluate_metrics_serverapp[server_round] = scores
            seconds = self.record.setdefault("seconds", {})
            seconds |= {"train": trained - began, "evaluate": time.perf_counter() - trained}
            if on_round:
                on_round(server_round, self.payload, self.record)
        result.arrays = arrays
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.roll_call(grid)
        self._sampled = [self.nodes[partition] for partition in self.sample(server_round)]
        rate = learning_rate(self.settings.client, server_round, self.settings.rounds)
        content = self._content({**config, "round": server_round, "learning-rate": rate}, arrays)
        self.record |= {"learning_rate": rate, "bytes_down": len(self._sampled) * _num_bytes(arrays)}
        return [Message(content, node.node_id, MessageType.TRAIN) for node in self._sampled]

    def sample(self, server_round: int) -> list[int]:
        """The partitions that work in this round: a function of the seed, the round and who is there."""
        present = sorted(self.nodes)
        count = min(self.settings.clients_per_round or len(present), len(present))
        chosen = np.random.default_rng([self.settings.seed, server_round]).choice(present, count, replace=False)
        return sorted(chosen.tolist())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        previous = self.payload
        good, dropped, bytes_up = self._sort_out(replies)
        self.record |= {
            "bytes_up": bytes_up,
            "dropped": dropped,
            "clients": [{"partition": r.partition, "num_examples": r.num_examples, **r.metrics} for r in good],
            "seconds": {"clients": [r.metrics.pop("seconds", None) for r in good]},
        }
        for client in self.record["clients"]:
            client.pop("seconds", None)
        for drop in dropped:
            log.warning(
                "round %d: dropped the reply of partition %s: %s", server_round, drop["partition"], drop["reason"]
            )
        if not good and dropped and all("not finite" in drop["reason"] for drop in dropped):
            raise RunError(f"round {server_round}: the run diverged; every reply has values that are not finite")
        if len(good) < self.settings.server.min_replies:
            self.record["merged"] = False
            log.warning(
                "round %d: %d good replies, server.min_replies is %d; the global posterior stays as it was",
                *(server_round, len(good), self.settings.server.min_replies),
            )
            return None, None
        weights = self.weights(good, previous.posterior)
        buffers = None
        if previous.buffers is not None:
            buffers = np.average([r.payload.buffers for r in good], axis=0, weights=weights).astype(np.float32)
        self.payload = Payload(self.merge(good, previous.posterior), buffers, previous.extras)
        loss = float(np.average([r.metrics["loss"] for r in good], weights=[r.num_examples for r in good]))
        self.record |= {"merged": True, "train_loss": loss, "posterior": self._extremes(server_round)}
        return self.arrays(), MetricRecord({"loss": loss, "num-examples": sum(r.num_examples for r in good)})

    def _sort_out(self, replies: Iterable[Message]) -> tuple[list[Reply], list[dict[str, Any]], int]:
        """Good replies in partition order, bad ones as {partition, reason}, and the bytes of all of them."""
        partition_of = {node.node_id: node.partition for node in self._sampled}
        good, dropped, bytes_up = [], {}, 0
        for message in replies:
            partition = partition_of.get(message.metadata.src_node_id)
            if message.has_error():
                if partition is not None:
                    dropped[partition] = _reason(message)
                continue
            record = message.content.get("posterior")
            if record is not None:
                bytes_up += _num_bytes(record)
            outcome = self._read(partition, message)
            if isinstance(outcome, Reply):
                good.append(outcome)
            else:
                dropped[partition] = outcome
        answered = {reply.partition for reply in good} | set(dropped)
        dropped |= {p: "no reply in time" for p in partition_of.values() if p not in answered}
        good.sort(key=lambda reply: reply.partition)
        return good, [{"partition": p, "reason": dropped[p]} for p in sorted(dropped)], bytes_up

    def _read(self, partition: int, message: Message) -> Reply | str:
        """The reply, or what is wrong with it."""
        try:
            arrays, metrics = message.content["posterior"], dict(message.content["metrics"])
            payload = self.codec.decode(_to_numpy(arrays), self.payload)
            num_examples = int(metrics.pop("num-examples"))
        except KeyError as error:
            return f"the reply lacks {error}"
        except ValueError as error:
            return str(error)
        if num_examples < 1:
            return f"num-examples is {num_examples}"
        return payload.fault() or Reply(partition, num_examples, payload, metrics)

    def _extremes(self, server_round: int) -> dict[str, float]:
        """The largest |mean| and the range of the precision; a run in which they grow without bound stops here."""
        mean, precision = self.payload.posterior.mean, self.payload.posterior.precision
        extremes = {"largest_mean": float(np.abs(mean).max())}
        if precision is not None:
            extremes |= {"smallest_precision": float(precision.min()), "largest_precision": float(precision.max())}
        limits = self._limits or (0.0, 0.0)
        now = (extremes["largest_mean"], extremes.get("largest_precision", 0.0))
        for name, value, first in zip(("mean", "precision"), now, limits, strict=True):
            if first and value > first * self.settings.server.max_growth:
                raise RunError(
                    f"round {server_round}: the run diverged; the largest {name} is {value:.3g}, over "
                    f"{self.settings.server.max_growth:g} times its first {first:.3g} (server.max_growth)"
                )
        self._limits = self._limits or now
        return extremes

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        every = self.settings.evaluation.clients_every
        if not every or (server_round % every and server_round != self.settings.rounds):
            return []
        self._sampled = [node for node in self.nodes.values() if node.num_test]
        content = self._content({**config, "round": server_round}, arrays)
        return [Message(content, node.node_id, MessageType.EVALUATE) for node in self._sampled]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The clients' scores, pooled from their sufficient statistics."""
        partition_of = {node.node_id: node.partition for node in self._sampled}
        tallies = {}
        for message in replies:
            partition = partition_of.get(message.metadata.src_node_id)
            try:
                if message.has_error():
                    raise ValueError(_reason(message))
                tallies[partition] = Tally.from_dict(dict(message.content["metrics"]))
            except (KeyError, ValueError) as error:
                log.warning("round %d: no scores of partition %s: %s", server_round, partition, error)
        if not tallies:
            return None
        tallies = dict(sorted(tallies.items()))
        pooled = sum(tallies.values(), Tally()).scores()
        by_client = [{"partition": p, **tally.scores()} for p, tally in tallies.items()]
        self.record.setdefault("gm", {})["clients_before_training"] = {"mean": pooled, "by_client": by_client}
        return MetricRecord(pooled)

    def summary(self) -> None:
        merge = self.settings.merge
        log.info("%s: rule %s, weighting %s", self.settings.strategy, merge.rule, merge.weighting)

    def arrays(self) -> ArrayRecord:
        """The global posterior as it goes over the wire."""
        return ArrayRecord({name: Array(array) for name, array in self.codec.encode(self.payload).items()})

    def _content(self, config: dict[str, Any], arrays: ArrayRecord | None = None) -> RecordDict:
        records = {"posterior": arrays} if arrays is not None else {}
        return RecordDict(records | {"config": ConfigRecord({**config, "settings": self._settings_json})})


def wait_for_nodes(grid: Grid, settings: Settings) -> int:
    """Waits until the federation is complete and says its size: `data.clients`, or, without it, what has come."""
    wanted, limit = settings.data.clients, time.monotonic() + settings.server.node_timeout
    count, before = len(list(grid.get_node_ids())), -1
    while count < (wanted or 1) or (wanted is None and count != before):
        if time.monotonic() > limit:
            raise RunError(
                f"the federation has {count} nodes after {settings.server.node_timeout:g} s, and data.clients asks for "
                f"{wanted or 'at least 1'}: start more nodes (in a simulation --federation-config "
                f"'num-supernodes={wanted or 2}', which `fedivon run` does by itself), or lower data.clients"
            )
        before = count
        time.sleep(0.5)
        count = len(list(grid.get_node_ids()))
    return count


def learning_rate(client: ClientSettings, server_round: int, rounds: int) -> float:
    """The clients' rate in a round: the first in round 1, the final one in the last, by the schedule in between."""
    if client.schedule == "constant" or rounds == 1:
        return client.learning_rate
    progress = (server_round - 1) / (rounds - 1)
    share = 1 - progress if client.schedule == "linear" else 0.5 * (1 + cos(pi * progress))
    return client.final_learning_rate + (client.learning_rate - client.final_learning_rate) * share


def _to_numpy(record: ArrayRecord) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in record.items()}


def _num_bytes(record: ArrayRecord) -> int:
    return sum(len(array.data) for array in record.values())


def _reason(message: Message) -> str:
    """The last line of a client's error: the exception's own text."""
    lines = [line.strip() for line in str(message.error.reason or "").splitlines() if line.strip()]
    return lines[-1] if lines else f"error code {message.error.code}"
