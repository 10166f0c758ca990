"""PosteriorStrategy: what every method's server does, under Flower's Strategy interface.

A round samples clients by partition id from the run's seed, sends them the global posterior, drops bad replies by name
and reason, and merges the rest in partition order: one seed, one result, although Flower's node ids are random.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from pydantic import Field

from fedivon_app.core import client_scores, heap
from fedivon_app.core.codec import Codec, Payload, Raw
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import ClientSettings, Section, Settings
from fedivon_app.strategies.aggregation import RULES as MERGING
from fedivon_app.strategies.aggregation import aggregate_counting
from fedivon_app.strategies.divergence import divergence, extremes
from fedivon_app.strategies.guard import guarded, precision_shares
from fedivon_app.strategies.receive import gather
from fedivon_app.strategies.replies import (
    Replies,
    Reply,
    num_bytes,
    reason,
    record_of,
    sort_out,
    to_numpy,
    to_record,
)
from fedivon_app.strategies.roll_call import Node, RollCall, RunError
from fedivon_app.strategies.weighting import RULES as WEIGHING
from fedivon_app.strategies.weighting import weigh

log = logging.getLogger("fedivon")

PATIENCE = 3  # rounds in which every client may fail before any has trained

OnRound = Callable[[int, Payload, dict[str, Any]], None]


class MergeSettings(Section):
    """How the clients' posteriors become the server's."""

    rule: Literal[*MERGING] = Field(
        "nwa", description="aggregation rule, see strategies/aggregation.py"
    )
    weighting: Literal[*WEIGHING] = Field(
        "size", description="weighting rule, see strategies/weighting.py"
    )


class PosteriorStrategy(Strategy):
    """The shared half of every strategy. A method overrides `merge`, and `initial` where it starts with a precision."""

    Settings: type[Section] = MergeSettings
    has_global_model = True  # whether what the server holds is a model that can be scored

    def __init__(
        self, settings: Settings, shape: tuple[int, ...] = (), num_classes: int | None = None
    ):
        self.settings = settings
        self.codec: Codec = Raw()
        self.roll_call = RollCall(settings, tuple(shape), num_classes)
        self.payload: Payload | None = None  # the global posterior
        self.record: dict[str, Any] = {}  # the round's line of metrics
        self._asked: list[Node] = []
        self._reporting: set[int] = set()  # the partitions whose posteriors this round is to merge
        self.clients_go_on = (
            True  # whether what a client does depends on what it kept in earlier rounds
        )
        self.blocks: Sequence[
            slice
        ] = ()  # of the flat vector: the network's tensors; none: one block
        self.first_extremes: dict[str, float] = {}  # of the posterior before round 1
        self.run_folder: Path | None = None
        self._failed_rounds = 0  # at the start of the run, in which every client failed
        self.last_merged: dict[
            int, int
        ] = {}  # by partition, the last round in which its reply was merged
        self._saved_merged: dict[int, int] = {}  # the same in the last checkpoint
        self._settings_json = settings.model_dump_json()

    # What a method may override.

    def begin(self, mean: np.ndarray, buffers: np.ndarray | None = None) -> Payload:
        """What is sent in round 1, around the network's initial weights."""
        return Payload(self.initial(mean), buffers, self.initial_extras(mean))

    def initial(self, mean: np.ndarray) -> Posterior:
        """The server's posterior before round 1, around the network's initial weights."""
        precision = self.settings.client.initial_precision
        return Posterior(mean, None if precision is None else np.full_like(mean, precision))

    def initial_extras(self, mean: np.ndarray) -> dict[str, np.ndarray]:
        """What the method adds to the posterior on the wire, before round 1."""
        return {}

    def merge_extras(self, replies: Sequence[Reply], previous: Payload) -> Mapping[str, np.ndarray]:
        """The same after a round."""
        return previous.extras

    def merge(
        self, replies: Sequence[Reply], weights: np.ndarray, previous: Posterior
    ) -> Posterior:
        """The server's next posterior; here by the rule of the settings."""
        posteriors = (reply.posterior for reply in replies)
        merged, kept = aggregate_counting(self.settings.merge.rule, posteriors, weights, previous)
        if kept is not None:
            self.record["kept_coordinates"] = kept
        return merged

    def weights(self, replies: Sequence[Reply], previous: Posterior) -> np.ndarray:
        """How much each client counts, by the weighting of the settings; sum 1."""
        posteriors = (reply.posterior for reply in replies)
        return weigh(
            self.settings.merge.weighting, posteriors, [r.num_examples for r in replies], previous
        )

    def state(self) -> dict[str, np.ndarray]:
        """What the strategy itself carries from round to round, for the checkpoint."""
        return {"last_merged": np.array(sorted(self.last_merged.items()), np.int64).reshape(-1, 2)}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Takes back what `state` gave."""
        self.last_merged = dict(state.get("last_merged", np.empty((0, 2))).tolist())
        self.saved()

    def saved(self) -> None:
        """Says that a checkpoint of this round was written: nobody will ask for what was before it."""
        self._saved_merged = dict(self.last_merged)

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
        arrays = initial_arrays
        self.payload = self.codec.decode(to_numpy(initial_arrays))
        self.roll_call.assemble(grid, self._content({"round": 0}))
        for server_round in range(first_round, num_rounds + 1):
            began = time.perf_counter()
            self.record = {"round": server_round}
            messages = self.configure_train(
                server_round, arrays, train_config or ConfigRecord(), grid
            )
            waiting = timeout, self.settings.server.quorum, self.settings.server.grace
            merged, metrics = self.aggregate_train(server_round, gather(grid, messages, *waiting))
            arrays = merged or arrays
            if metrics is not None:
                result.train_metrics_clientapp[server_round] = metrics
            trained = time.perf_counter()
            if messages := list(
                self.configure_evaluate(
                    server_round, arrays, evaluate_config or ConfigRecord(), grid
                )
            ):
                scores = self.aggregate_evaluate(server_round, gather(grid, messages, *waiting))
                if scores is not None:
                    result.evaluate_metrics_clientapp[server_round] = scores
            if evaluate_fn and (scores := evaluate_fn(server_round, arrays)) is not None:
                result.evaluate_metrics_serverapp[server_round] = scores
            self.record["seconds"] |= {
                "train": trained - began,
                "evaluate": time.perf_counter() - trained,
            }
            if on_round:
                on_round(server_round, self.payload, self.record)
            heap.give_back()
        result.arrays = arrays
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.roll_call.call(grid, self._content({"round": server_round}), server_round)
        rate = learning_rate(self.settings.client, server_round, self.settings.rounds)
        config = {**config, "round": server_round, "learning-rate": rate}
        chosen = self.sample(server_round)
        self._reporting = {node.partition for node in chosen}
        if self.settings.train_all_clients and (
            self.clients_go_on or self._clients_are_scored(server_round)
        ):
            chosen = list(self.roll_call.nodes.values())
        messages = self._ask(chosen, config, MessageType.TRAIN, arrays)
        self.record |= {"learning_rate": rate, "bytes_down": len(messages) * num_bytes(arrays)}
        return messages

    def sample(self, server_round: int) -> list[Node]:
        """Who reports in this round, and works unless all do: by the seed, the round and the partitions there are."""
        present = sorted(self.roll_call.nodes)
        count = min(self.settings.clients_per_round or len(present), len(present))
        chosen = np.random.default_rng([self.settings.seed, server_round]).choice(
            present, count, replace=False
        )
        return [self.roll_call.nodes[partition] for partition in sorted(chosen.tolist())]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        sorted_out = sort_out(
            replies, self._partition_of(), self.codec, self.payload, self._reporting
        )
        self._note(server_round, sorted_out)
        previous = self.payload
        good = self._guard(server_round, sorted_out.good, previous.posterior)
        self.record["merged"] = len(good) >= self.settings.server.min_replies
        if not self.record["merged"]:
            counts = len(good), self.settings.server.min_replies
            log.warning(
                "round %d: %d good replies of at least %d; the posterior stays as it was",
                server_round,
                *counts,
            )
            return None, None
        weights = self.weights(good, previous.posterior)
        shares = precision_shares(good, weights)
        for k, client in enumerate(self.record["clients"]):
            client |= {"weight": float(weights[k])} | (
                {"precision_share": shares[k]} if shares else {}
            )
        merged = self.merge(good, weights, previous.posterior)
        buffers = None
        self.first_extremes = self.first_extremes or extremes(merged)
        if why := divergence(merged, self.first_extremes, self.settings.server.max_growth, good):
            raise RunError(f"round {server_round}: the run diverged; {why}")
        if previous.buffers is not None:
            buffers = np.average([r.payload.buffers for r in good], axis=0, weights=weights).astype(
                np.float32
            )
        self.payload = Payload(merged, buffers, self.merge_extras(good, previous))
        self.last_merged |= dict.fromkeys(
            [*(reply.partition for reply in good), *sorted_out.silent], server_round
        )
        loss = float(
            np.average([r.metrics["loss"] for r in good], weights=[r.num_examples for r in good])
        )
        self.record |= {"train_loss": loss, "posterior": extremes(merged)}
        return self.arrays(), MetricRecord(
            {"loss": loss, "num-examples": sum(r.num_examples for r in good)}
        )

    def _guard(
        self, server_round: int, replies: Sequence[Reply], previous: Posterior
    ) -> list[Reply]:
        """The replies within the bounds of the settings; who exceeded them is named."""
        server = self.settings.server
        blocks = self.blocks or [slice(None)]
        bounds = server.precision_bound, server.change_bound
        replies, findings = guarded(replies, previous, blocks, *bounds)
        for client in self.record["clients"]:
            for what, excess in findings.get(client["partition"], {}).items():
                client.setdefault("bounded", {})[what] = excess
                words = server_round, self.roll_call.who(client["partition"]), what, excess
                log.warning(
                    "round %d: the reply of %s is bounded: its %s is %.3g times the median", *words
                )
        return replies

    def _note(self, server_round: int, replies: Replies) -> None:
        """The round's record of who answered what. One in which nobody sent finite numbers ends the run; so do a few
        at its start in which every client fails, for then nothing would ever be learned."""
        clients = [
            {
                "partition": r.partition,
                "num_examples": r.num_examples,
                "bytes": r.num_bytes,
                **r.metrics,
            }
            for r in replies.good
        ]
        self.record |= {
            "bytes_up": replies.num_bytes,
            "dropped": [{"partition": p, "reason": why} for p, why in replies.dropped.items()],
            **({"silent": len(replies.silent)} if self.settings.train_all_clients else {}),
            "seconds": {"clients": [client.pop("seconds", None) for client in clients]},
            "clients": clients,
        }
        for partition, why in replies.dropped.items():
            log.warning(
                "round %d: dropped the reply of %s: %s",
                server_round,
                self.roll_call.who(partition),
                why,
            )
        if (
            replies.dropped
            and not replies.good
            and all("not finite" in why for why in replies.dropped.values())
        ):
            whose = "; ".join(
                f"partition {partition}: {why}" for partition, why in replies.dropped.items()
            )
            raise RunError(f"round {server_round}: the run diverged; no reply is finite ({whose})")
        trained = replies.good or replies.silent or self.last_merged
        if not trained and 0 < replies.num_errors == len(replies.dropped):
            self._failed_rounds += 1
            if self._failed_rounds == min(PATIENCE, self.settings.rounds):
                partition, why = next(iter(replies.dropped.items()))
                raise RunError(
                    f"round {server_round}: no client can train; {self.roll_call.who(partition)}: {why}"
                )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if not self.settings.evaluation.clients_every or not self._clients_are_scored(server_round):
            return []
        able = [node for node in self.roll_call.nodes.values() if node.num_test]
        config = {**config, "round": server_round, "score-gm": self.has_global_model}
        return self._ask(able, config, MessageType.EVALUATE, arrays)

    def _clients_are_scored(self, server_round: int) -> bool:
        every = self.settings.evaluation.clients_every
        return server_round == self.settings.rounds or (bool(every) and server_round % every == 0)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The clients' scores, pooled from their sufficient statistics."""
        partition_of = self._partition_of()
        tallies = {}
        missing = dict.fromkeys(partition_of.values(), "no reply in time")
        for message in replies:
            partition = partition_of.get(message.metadata.src_node_id)
            if partition is None:  # Flower's own word about a node that is gone
                continue
            try:
                if message.has_error():
                    raise ValueError(reason(message))
                tallies[partition] = client_scores.from_metrics(
                    record_of(message, "metrics", MetricRecord)
                )
                del missing[partition]
            except ValueError as error:
                missing[partition] = str(error)
        for partition, why in missing.items():
            log.warning(
                "round %d: no scores of %s: %s", server_round, self.roll_call.who(partition), why
            )
        sizes = {partition: node.num_train for partition, node in self.roll_call.nodes.items()}
        found = client_scores.gathered(tallies, sizes, self.settings.evaluation.samples)
        for who, scores in found.items():
            self.record.setdefault(who, {}).update(scores)
        if not found:
            return None
        return MetricRecord(
            {f"{who}-{key}": v for who, part in found.items() for key, v in _first(part).items()}
        )

    def summary(self) -> None:
        merge = self.settings.merge
        log.info("%s: rule %s, weighting %s", self.settings.strategy, merge.rule, merge.weighting)

    def arrays(self) -> ArrayRecord:
        """The global posterior as it goes over the wire."""
        return to_record(self.codec.encode(self.payload))

    def _content(self, config: dict[str, Any], arrays: ArrayRecord | None = None) -> RecordDict:
        records = {"posterior": arrays} if arrays is not None else {}
        return RecordDict(
            records | {"config": ConfigRecord({**config, "settings": self._settings_json})}
        )

    def _ask(
        self, nodes: list[Node], config: dict[str, Any], kind: str, arrays: ArrayRecord
    ) -> list[Message]:
        self._asked = nodes
        return [
            Message(self._content(config | self._for(node), arrays), node.node_id, kind)
            for node in nodes
        ]

    def _for(self, node: Node) -> dict[str, Any]:
        """What a client must know of its task, of the others, and to find what it kept (clients/memory.py)."""
        folder = self.run_folder
        partition = node.partition
        place = {"run": folder.name if folder else "run"}
        if folder and self.settings.run.client_state == "run":
            place["client-state"] = str(folder / "clients")
        place["total-examples"] = sum(node.num_train for node in self.roll_call.nodes.values())
        last = self.last_merged.get(partition, 0)
        saved = self._saved_merged.get(partition, 0)
        return place | {
            "last-merged": last,
            "last-saved": saved,
            "report": partition in self._reporting,
        }

    def _partition_of(self) -> dict[int, int]:
        return {node.node_id: node.partition for node in self._asked}


def _first(part: dict[str, Any]) -> dict[str, float]:
    """The scores at the mean of a part of the record."""
    return next(iter(part.values()))["mean"]


def learning_rate(client: ClientSettings, server_round: int, rounds: int) -> float:
    """The clients' rate in a round: the first in round 1, the final one in the last, by the schedule in between;
    `exponential` has no final one and falls by exp(-decay) a round after `decay_after` rounds."""
    if client.schedule == "exponential":
        return client.learning_rate * exp(-client.decay * max(server_round - client.decay_after, 0))
    if client.schedule_over != "rounds" or rounds == 1:
        return client.learning_rate
    return client.rate_at((server_round - 1) / (rounds - 1))
