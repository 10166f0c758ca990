"""The rounds of a run, under Flower's Strategy interface.

A round samples clients by partition id from the run's seed, sends them the global posterior, drops
bad replies by name and reason, and lets the method merge the rest in partition order: one seed,
one result, although Flower's node ids are random. What a method does is in its hooks,
strategies/base.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedivon_app.core import client_scores, heap
from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.compact import codec_of
from fedivon_app.core.conformal import told_histograms
from fedivon_app.core.errors import DivergenceError, FaultKind, RunError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.sampling import sampled
from fedivon_app.core.scores import chosen_scores
from fedivon_app.strategies.base import Merged, PosteriorStrategy, Reply, Round
from fedivon_app.strategies.client_evaluation import read_scores, scores_at_the_mean
from fedivon_app.strategies.divergence import extremes, why_diverged
from fedivon_app.strategies.downlink import downlink_of
from fedivon_app.strategies.guard import precision_shares
from fedivon_app.strategies.history import History
from fedivon_app.strategies.messages import Contents
from fedivon_app.strategies.receive import gather
from fedivon_app.strategies.replies import Replies, num_bytes, sort_out, to_numpy, to_record
from fedivon_app.strategies.robust_merge import Vetted
from fedivon_app.strategies.roll_call import Node, RollCall
from fedivon_app.strategies.standing import Standing
from fedivon_app.strategies.vetting import Screened, Vetting

log = logging.getLogger("fedivon")

PATIENCE = 3  # rounds in which every client may fail before any has trained

Record = dict[str, Any]  # a round's line of metrics
CALIBRATION = "calibration"  # in a record: histograms by partition, for the observer to keep


class Observer(Protocol):
    """Who is told of the rounds: it scores the global model, and keeps what came of a round."""

    def score(self, server_round: int, payload: Payload) -> Mapping[str, Any] | None:
        """Return the server's own scores of the global model in this round, or None."""

    def finished(self, standing: Standing, record: Record) -> bool:
        """Take note of a finished round, and tell whether a checkpoint of it was written."""


@dataclass(frozen=True)
class Asked:
    """Whom a round asked, and which partitions of them are to report."""

    nodes: Sequence[Node] = ()
    reporting: frozenset[int] = frozenset()

    @property
    def partition_of(self) -> dict[int, int]:
        """Return the partitions by node id."""
        return {node.node_id: node.partition for node in self.nodes}


class Rounds(Strategy):
    """The loop around a method's hooks.

    `first` is what the strategy begins with, against which growth is measured; `standing` is where
    the run goes on, or None at its beginning. `clients_carry_on` tells whether what a client does
    depends on what it kept in earlier rounds. `roll_call` may have called the nodes already.
    """

    def __init__(
        self,
        strategy: PosteriorStrategy[Any],
        first: Payload,
        *,
        standing: Standing | None = None,
        clients_carry_on: bool = True,
        run_folder: Path | None = None,
        roll_call: RollCall | None = None,
    ):
        self.strategy = strategy
        self.settings = strategy.settings
        self.codec = codec_of(self.settings.wire, strategy.architecture.blocks)
        self.downlink = downlink_of(self.codec, self.settings.wire.remembered)
        self.roll_call = roll_call or RollCall(strategy.settings, strategy.architecture)
        self.standing = standing or Standing(0, first)
        self.clients_carry_on = clients_carry_on
        self.run_folder = run_folder
        self._first_extremes = extremes(first.posterior)
        self._saved_merged = dict(self.standing.last_merged)  # as the last checkpoint has it
        self._failed_rounds = 0  # at the start of the run, in which every client failed
        self._asked = Asked()
        self._record: Record = {}
        self.vetting = Vetting(strategy, len(first.posterior))
        self._scores = chosen_scores(self.settings.evaluation.scores, self.settings.task)
        self._contents = Contents(self.settings)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        observer: Observer | None = None,
    ) -> Result:
        """Run the rounds up to `num_rounds`, from the one after the standing."""
        result = Result()
        arrays = initial_arrays
        payload = Raw().decode(to_numpy(initial_arrays))
        self.standing = replace(self.standing, payload=payload)
        if not self.roll_call.assembled:
            self.roll_call.assemble(grid, self._question(0))
        train_config = train_config or ConfigRecord()
        evaluate_config = evaluate_config or ConfigRecord()
        for server_round in range(self.standing.round + 1, num_rounds + 1):
            began = time.perf_counter()
            self._record = {"round": server_round}
            asked = self.configure_train(server_round, arrays, train_config, grid)
            replies = self._gather(grid, asked, timeout)
            merged, metrics = self.aggregate_train(server_round, replies)
            arrays = merged or arrays
            if metrics is not None:
                result.train_metrics_clientapp[server_round] = metrics
            trained = time.perf_counter()
            asked = list(self.configure_evaluate(server_round, arrays, evaluate_config, grid))
            if asked:
                scores = self.aggregate_evaluate(server_round, self._gather(grid, asked, timeout))
                if scores is not None:
                    result.evaluate_metrics_clientapp[server_round] = scores
            if evaluate_fn and (scores := evaluate_fn(server_round, arrays)) is not None:
                result.evaluate_metrics_serverapp[server_round] = scores
            if observer is not None:
                found = observer.score(server_round, self.standing.payload)
                if found:
                    self._record.setdefault("gm", {}).update(found)
                    result.evaluate_metrics_serverapp[server_round] = _told(found)
            self._record["seconds"] |= {
                "train": trained - began,
                "evaluate": time.perf_counter() - trained,
            }
            self.standing = replace(self.standing, round=server_round)
            if observer is not None and observer.finished(self.standing, self._record):
                self._saved_merged = dict(self.standing.last_merged)
            heap.give_back()
        result.arrays = arrays
        return result

    def summary(self) -> None:
        """Log how the method merges."""
        merge = self.settings.merge
        log.info("%s: rule %s, weighting %s", self.settings.strategy, merge.rule, merge.weighting)

    def arrays(self) -> ArrayRecord:
        """Return the global posterior as it is."""
        return to_record(Raw().encode(self.standing.payload))

    # Training.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages that ask this round's clients to train."""
        self.roll_call.call(grid, self._question(server_round), server_round)
        rate = self.settings.client.rate_in(server_round, self.settings.rounds)
        chosen = self.sample(server_round)
        reporting = frozenset(node.partition for node in chosen)
        seen = self.clients_carry_on or self._clients_are_scored(server_round)
        if self.settings.train_all_clients and seen:
            chosen = list(self.roll_call.nodes.values())
        self._asked = Asked(chosen, reporting)
        told = Instructions(round=server_round, learning_rate=rate)
        messages = self._messages(MessageType.TRAIN, told, config=config, arrays=arrays)
        down = sum(num_bytes(message.content["posterior"]) for message in messages)
        self._record |= {"learning_rate": rate, "bytes_down": down}
        return messages

    def sample(self, server_round: int) -> list[Node]:
        """Return who reports in this round, and works unless all do."""
        gone = self.standing.history.left_out
        nodes = {p: node for p, node in self.roll_call.nodes.items() if p not in gone}
        count = self.settings.clients_per_round
        chosen = sampled(nodes, count, seed=self.settings.seed, server_round=server_round)
        return [nodes[partition] for partition in chosen]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Merge the good replies of a round; with too few of them nothing changes."""
        previous = self.downlink.received(self.standing.payload)
        sorted_out = sort_out(
            replies,
            self._asked.partition_of,
            codec=self.codec,
            sent=previous,
            sizes=self.roll_call.sizes,
            reporting=self._asked.reporting,
            with_loss=not self.settings.privacy.is_private,
        )
        self._note(server_round, sorted_out)
        done = {reply.partition for reply in sorted_out.good} | set(sorted_out.silent)
        answered = {node.node_id: node.partition in done for node in self._asked.nodes}
        self.downlink.note(self.standing.payload, answered)
        screened = self._screened(server_round, sorted_out.good, previous)
        if not self._enough(server_round, len(screened.replies)):
            return None, None
        kept = self.vetting.weighed(screened.replies, previous)
        if kept.left_out:
            self._record["not_chosen"] = sorted(kept.left_out)
            self._forget(kept.left_out)
        good = kept.replies
        self._note_weights(good, kept.weights)
        sizes = [reply.num_examples for reply in good]
        return self._advance(
            server_round,
            self._merge(server_round, kept),
            buffers=None if previous.buffers is None else _average_buffers(good, kept.weights),
            merged_now=[*(reply.partition for reply in good), *sorted_out.silent],
            loss=_mean_loss(good),
            num_examples=sum(sizes),
            good=good,
            history=screened.history,
        )

    def _enough(self, server_round: int, count: int) -> bool:
        """Tell whether there are enough good replies for a merge, and note it."""
        least = self.settings.server.min_replies
        enough = count >= least
        self._record["merged"] = enough
        if not enough:
            log.warning(
                "round %d: %d good replies of at least %d; the posterior stays as it was",
                server_round,
                count,
                least,
            )
        return enough

    def _round(self, server_round: int, replies: Sequence[Reply], weights: np.ndarray) -> Round:
        """Return what a method's merge is given."""
        return Round(
            number=server_round,
            replies=replies,
            weights=weights,
            previous=self.downlink.received(self.standing.payload),
            num_clients=self.settings.data.clients or len(self.roll_call.nodes),
            first=not self.standing.last_merged,
            state=self.standing.state,
        )

    def _merge(self, server_round: int, kept: Vetted) -> Merged:
        """Return what the method makes of the replies; nothing else comes of it."""
        return self.strategy.merge(self._round(server_round, kept.replies, kept.weights))

    def _advance(
        self,
        server_round: int,
        merged: Merged,
        *,
        buffers: np.ndarray | None,
        merged_now: Iterable[int],
        loss: float | None,
        num_examples: int,
        good: Sequence[Reply] = (),
        history: History | None = None,
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Go on from what was merged of these partitions.

        `good` are their replies and `history` what the guard found, where single ones are known.
        """
        self._record |= merged.notes
        self._check(server_round, merged, good)
        previous = self.downlink.received(self.standing.payload)
        payload = Payload(
            posterior=merged.posterior,
            buffers=buffers,
            extras=previous.extras if merged.extras is None else merged.extras,
        )
        self.standing = Standing(
            round=self.standing.round,
            payload=self.downlink.carried(self.standing.payload, payload),
            state=merged.state,
            last_merged={**self.standing.last_merged, **dict.fromkeys(merged_now, server_round)},
            history=self.standing.history if history is None else history,
        )
        told = MetricRecord({"num-examples": num_examples})
        if loss is not None and not self.settings.privacy.is_private:
            told["loss"] = self._record["train_loss"] = loss
        self._record["posterior"] = extremes(merged.posterior)
        return self.arrays(), told

    def _screened(self, server_round: int, replies: Sequence[Reply], previous: Payload) -> Screened:
        """Return the replies that may be merged; who is cut back or dropped is named."""

        def tried(lies: Sequence[Reply]) -> Posterior:
            kept = self.vetting.weighed(lies, previous)
            return self._merge(server_round, kept).posterior

        received = self.vetting.attacked(server_round, replies, previous, tried)
        found = self.vetting.screened(server_round, received, previous, self.standing.history)
        for partition, excess in found.bounded.items():
            for what, times in excess.items():
                log.warning(
                    "round %d: the reply of %s is bounded: its %s is %.3g times the median",
                    server_round,
                    self.roll_call.who(partition),
                    what,
                    times,
                )
        for client in self._record["clients"]:
            if client["partition"] in found.bounded:
                client["bounded"] = dict(found.bounded[client["partition"]])
        for partition, why in found.dropped.items():
            who = self.roll_call.who(partition)
            log.warning("round %d: dropped the reply of %s: %s", server_round, who, why)
            self._record["dropped"].append({"partition": partition, "reason": why})
        new = found.history.left_out - self.standing.history.left_out
        for partition in sorted(new):
            who = self.roll_call.who(partition)
            log.warning("round %d: %s is left out from now on", server_round, who)
        if found.history.left_out:
            self._record["left_out"] = sorted(found.history.left_out)
        self._forget(found.dropped)
        return found

    def _forget(self, partitions: Container[int]) -> None:
        """Take clients whose replies are not merged out of the round's line."""
        clients = self._record["clients"]
        self._record["clients"] = [c for c in clients if c["partition"] not in partitions]

    def _check(self, server_round: int, merged: Merged, good: Sequence[Reply]) -> None:
        """End the run if the merged posterior is beyond all bounds."""
        limit = self.settings.server.max_growth
        if why := why_diverged(merged.posterior, self._first_extremes, limit, good):
            raise DivergenceError(f"round {server_round}: the run diverged; {why}")

    def _note_weights(self, good: Sequence[Reply], weights: np.ndarray) -> None:
        shares = precision_shares(good, weights)
        for k, client in enumerate(self._record["clients"]):
            client["weight"] = float(weights[k])
            if shares:
                client["precision_share"] = shares[k]

    def _note(self, server_round: int, replies: Replies) -> None:
        """Record who answered what.

        A round in which nobody sent finite numbers ends the run; so do a few at its start in which
        every client fails, for then nothing would ever be learned.
        """
        clients = [
            {
                "partition": reply.partition,
                **self._named(reply.partition),
                "num_examples": reply.num_examples,
                "bytes": reply.num_bytes,
                **reply.metrics,
            }
            for reply in replies.good
        ]
        dropped = [
            {"partition": p, **self._named(p), "reason": str(why)}
            for p, why in replies.dropped.items()
        ]
        self._record |= {"bytes_up": replies.num_bytes, "dropped": dropped}
        if self.settings.train_all_clients:
            self._record["silent"] = len(replies.silent)
        self._record |= {
            "seconds": {"clients": [client.pop("seconds", None) for client in clients]},
            "clients": clients,
        }
        for partition, fault in replies.dropped.items():
            who = self.roll_call.who(partition)
            log.warning("round %d: dropped the reply of %s: %s", server_round, who, fault)
        if replies.all_dropped_for(FaultKind.NOT_FINITE):
            whose = "; ".join(f"partition {p}: {why}" for p, why in replies.dropped.items())
            raise DivergenceError(
                f"round {server_round}: the run diverged; no reply is finite ({whose})"
            )
        trained = replies.silent or self.standing.last_merged
        if not trained and replies.all_dropped_for(FaultKind.CLIENT_ERROR):
            self._failed_rounds += 1
            if self._failed_rounds == min(PATIENCE, self.settings.rounds):
                partition, fault = next(iter(replies.dropped.items()))
                who = self.roll_call.who(partition)
                raise RunError(f"round {server_round}: no client can train; {who}: {fault}")

    def _named(self, partition: int) -> dict[str, str]:
        """Return what a site calls itself; simulated clients have no names."""
        node = self.roll_call.nodes.get(partition)
        return {"name": node.name} if node and node.name else {}

    # Scores on the clients' own test parts.

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages that ask the clients for scores, in rounds that are scored there."""
        every = self.settings.evaluation.clients_every
        if not every or not self._clients_are_scored(server_round):
            return []
        able = [node for node in self.roll_call.nodes.values() if node.num_test]
        self._asked = replace(self._asked, nodes=able)
        told = Instructions(round=server_round, score_gm=self.strategy.has_global_model)
        return self._messages(MessageType.EVALUATE, told, config=config, arrays=arrays)

    def _clients_are_scored(self, server_round: int) -> bool:
        every = self.settings.evaluation.clients_every
        return server_round == self.settings.rounds or (bool(every) and server_round % every == 0)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Record the clients' scores, pooled from their sums."""
        told = read_scores(replies, self._asked.partition_of, self._scores)
        for partition, why in told.missing.items():
            who = self.roll_call.who(partition)
            log.warning("round %d: no scores of %s: %s", server_round, who, why)
        found = client_scores.gathered(
            told.tallies,
            sizes={p: node.num_train for p, node in self.roll_call.nodes.items()},
            samples=self.settings.evaluation.samples,
            scores=self._scores,
        )
        for who, scores in found.items():
            self._record.setdefault(who, {}).update(scores)
        shared = {p: tallies["gm"] for p, tallies in told.tallies.items() if "gm" in tallies}
        if calibrating := told_histograms(shared):
            self._record[CALIBRATION] = calibrating
        return scores_at_the_mean(found) if found else None

    # Messages.

    def _gather(self, grid: Grid, messages: Iterable[Message], timeout: float) -> Iterable[Message]:
        server = self.settings.server
        return gather(grid, messages, timeout, quorum=server.quorum, grace=server.grace)

    def _messages(
        self, kind: str, told: Instructions, *, config: ConfigRecord, arrays: ArrayRecord
    ) -> list[Message]:
        """Return a message for each node that is asked, with what it must know of its task."""
        messages = []
        told = self._for_all(told)
        for node in self._asked.nodes:
            parcel = self.downlink.parcel(self.standing.payload, node.node_id)
            own = replace(self._for(node, told), sent=parcel.sent, held=parcel.held)
            record = arrays if parcel.arrays is None else to_record(parcel.arrays)
            content = self._contents(own, config, record)
            messages.append(Message(content, node.node_id, kind))
        return messages

    def _question(self, server_round: int) -> RecordDict:
        """Return what is in the messages of a roll call."""
        return self._contents(self._for_all(Instructions(round=server_round)))

    def _for_all(self, told: Instructions) -> Instructions:
        """Add what clients must know of one another, and of where they keep things."""
        folder = self.run_folder
        shared = folder is not None and self.settings.run.client_state == "run"
        return replace(
            told,
            run=folder.name if folder else "run",
            client_state=str(folder / "clients") if folder and shared else None,
            first=not self.standing.last_merged,
            total_examples=sum(one.num_train for one in self.roll_call.nodes.values()),
        )

    def _for(self, node: Node, told: Instructions) -> Instructions:
        """Add what one client must know to find what it kept, and whether it is to report."""
        return replace(
            told,
            last_merged=self.standing.last_merged.get(node.partition, 0),
            last_saved=self._saved_merged.get(node.partition, 0),
            report=node.partition in self._asked.reporting,
        )


def _mean_loss(replies: Sequence[Reply]) -> float | None:
    """Return the mean loss by size, or None where clients do not tell theirs."""
    if not all("loss" in reply.metrics for reply in replies):
        return None
    sizes = [reply.num_examples for reply in replies]
    return float(np.average([reply.metrics["loss"] for reply in replies], weights=sizes))


def _average_buffers(replies: Sequence[Reply], weights: np.ndarray) -> np.ndarray:
    """Return the average of the clients' batch-norm statistics."""
    buffers = [reply.payload.buffers for reply in replies]
    average: np.ndarray = np.average(
        np.stack([b for b in buffers if b is not None]), axis=0, weights=weights
    )
    return average.astype(np.float32)


def _told(scores: Mapping[str, Any]) -> MetricRecord:
    """Return the server's scores on the test part as Flower's result has them."""
    best_way = list(scores.get("test", {"mean": {}}).values())[-1]
    return MetricRecord({key: float(value) for key, value in best_way.items()})
