"""The rounds of a run, under Flower's Strategy interface.

A round samples clients by partition id from the run's seed, sends them the global posterior, drops
bad replies by name and reason, and lets the method merge the rest in partition order: one seed,
one result, although Flower's node ids are random. What a method does is in its hooks,
strategies/base.py. What a round sends is in strategies/letters.py, what comes of the replies in
strategies/merging.py, and what is written down in strategies/round_record.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedivon_app.core import heap
from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.compact import codec_of
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.sampling import sampled
from fedivon_app.strategies.base import PosteriorStrategy
from fedivon_app.strategies.client_evaluation import ClientEvaluation, scores_at_the_mean
from fedivon_app.strategies.divergence import extremes
from fedivon_app.strategies.downlink import downlink_of
from fedivon_app.strategies.letters import Asked, Letters
from fedivon_app.strategies.merging import Merging, Outcome
from fedivon_app.strategies.receive import gather
from fedivon_app.strategies.replies import Replies, num_bytes, sort_out, to_numpy, to_record
from fedivon_app.strategies.roll_call import Node, RollCall
from fedivon_app.strategies.round_record import CALIBRATION, Record, RoundRecord
from fedivon_app.strategies.standing import Standing
from fedivon_app.strategies.stops import Stops
from fedivon_app.strategies.trial import Trial

log = logging.getLogger("fedivon")


class Observer(Protocol):
    """Who is told of the rounds: it scores the global model, and keeps what came of a round."""

    def score(self, server_round: int, payload: Payload) -> Mapping[str, Any] | None:
        """Return the server's own scores of the global model in this round, or None."""

    def finished(self, standing: Standing, record: Record) -> bool:
        """Take note of a finished round, and tell whether a checkpoint of it was written."""


class Rounds(Strategy):
    """The loop around a method's hooks.

    `first` is what the strategy begins with, against which growth is measured; `standing` is where
    the run goes on, or None at its beginning. `clients_carry_on` tells whether what a client does
    depends on what it kept in earlier rounds. `roll_call` may have called the nodes already, and
    `trial` is how the server tries a model on examples of its own, if it has any.
    """

    _record: RoundRecord  # of the round at hand

    def __init__(
        self,
        strategy: PosteriorStrategy[Any],
        first: Payload,
        *,
        standing: Standing | None = None,
        clients_carry_on: bool = True,
        run_folder: Path | None = None,
        roll_call: RollCall | None = None,
        trial: Trial | None = None,
    ):
        self.strategy = strategy
        self.settings = strategy.settings
        self.codec = codec_of(self.settings.wire, strategy.architecture.blocks)
        self.downlink = downlink_of(self.codec, self.settings.wire.remembered)
        self.roll_call = roll_call or RollCall(strategy.settings, strategy.architecture)
        self.standing = standing or Standing(0, first)
        self.clients_carry_on = clients_carry_on
        self._asked = Asked()
        self.stops = Stops(self.settings, first.posterior)
        self.merging = Merging(
            strategy,
            len(first.posterior),
            downlink=self.downlink,
            roll_call=self.roll_call,
            trial=trial,
        )
        self.client_evaluation = ClientEvaluation(self.settings, self.roll_call)
        self.letters = Letters(
            self.settings,
            self.roll_call,
            self.downlink,
            standing=self.standing,
            run_folder=run_folder,
        )

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
            self.roll_call.assemble(grid, self.letters.question(0, self.standing))
        train_config = train_config or ConfigRecord()
        evaluate_config = evaluate_config or ConfigRecord()
        for server_round in range(self.standing.round + 1, num_rounds + 1):
            began = time.perf_counter()
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
                    self._record.note_scores({"gm": found})
                    result.evaluate_metrics_serverapp[server_round] = _told(found)
            self._record.line["seconds"] |= {
                "train": trained - began,
                "evaluate": time.perf_counter() - trained,
            }
            self.standing = replace(self.standing, round=server_round)
            if observer is not None and observer.finished(self.standing, self._record.line):
                self.letters.saved(self.standing)
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
        self._record = RoundRecord(server_round, self.roll_call)
        question = self.letters.question(server_round, self.standing)
        self.roll_call.call(grid, question, server_round)
        rate = self.settings.client.rate_in(server_round, self.settings.rounds)
        chosen = self.sample(server_round)
        reporting = frozenset(node.partition for node in chosen)
        seen = self.clients_carry_on or self.client_evaluation.is_due(server_round)
        if self.settings.train_all_clients and seen:
            chosen = list(self.roll_call.nodes.values())
        self._asked = Asked(chosen, reporting)
        told = Instructions(round=server_round, learning_rate=rate)
        messages = self._messages(MessageType.TRAIN, told, config=config, arrays=arrays)
        down = sum(num_bytes(message.content["posterior"]) for message in messages)
        self._record.line |= {"learning_rate": rate, "bytes_down": down}
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
        sorted_out = sort_out(
            replies,
            self._asked.partition_of,
            codec=self.codec,
            sent=self.downlink.received(self.standing.payload),
            sizes=self.roll_call.sizes,
            reporting=self._asked.reporting,
            with_loss=not self.settings.privacy.is_private,
        )
        self._note(server_round, sorted_out)
        done = {reply.partition for reply in sorted_out.good} | set(sorted_out.silent)
        answered = {node.node_id: node.partition in done for node in self._asked.nodes}
        self.downlink.note(self.standing.payload, answered)
        screened = self.merging.screened(server_round, sorted_out.good, self.standing)
        self._record.note_screening(screened, self.standing.history)
        if not self._enough(len(screened.replies)):
            return None, None
        kept = self.merging.weighed(server_round, screened, self.standing)
        self._record.note_not_chosen(kept.left_out)
        if not kept.replies:
            self._record.note_ruin()
            return None, None
        self._record.note_weights(kept.weights, kept.replies)
        outcome = self.merging.outcome(
            server_round,
            kept,
            self.standing,
            silent=sorted_out.silent,
            history=screened.history,
        )
        return self._advance(server_round, outcome)

    def _note(self, server_round: int, replies: Replies) -> None:
        """Record who answered what, and end the run if nothing can come of it any more."""
        self._record.note_replies(replies, with_silent=self.settings.train_all_clients)
        has_trained = bool(self.standing.last_merged)
        self.stops.check_replies(
            server_round, replies, has_trained=has_trained, who=self.roll_call.who
        )

    def _enough(self, count: int) -> bool:
        """Tell whether there are enough good replies for a merge, and note it."""
        return self._record.note_enough(count, self.settings.server.min_replies)

    def _advance(self, server_round: int, outcome: Outcome) -> tuple[ArrayRecord, MetricRecord]:
        """Go on from what came of the round, unless the run has diverged."""
        posterior = outcome.merged.posterior
        self._record.line |= outcome.merged.notes
        self.stops.check_merged(server_round, posterior, outcome.good)
        self.standing = self.merging.advanced(server_round, self.standing, outcome)
        told = MetricRecord({"num-examples": outcome.num_examples})
        if outcome.loss is not None and not self.settings.privacy.is_private:
            told["loss"] = self._record.line["train_loss"] = outcome.loss
        self._record.line["posterior"] = extremes(posterior)
        return self.arrays(), told

    # Scores on the clients' own test parts.

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages that ask the clients for scores, in rounds that are scored there."""
        if not self.client_evaluation.asks(server_round):
            return []
        self._asked = replace(self._asked, nodes=self.client_evaluation.able())
        told = Instructions(round=server_round, score_gm=self.strategy.has_global_model)
        return self._messages(MessageType.EVALUATE, told, config=config, arrays=arrays)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Record the clients' scores, pooled from their sums."""
        told = self.client_evaluation.read(replies, self._asked.partition_of)
        self._record.note_unscored(told.missing)
        found = self.client_evaluation.pooled(told)
        self._record.note_scores(found)
        if calibrating := told.histograms():
            self._record.line[CALIBRATION] = calibrating
        return scores_at_the_mean(found) if found else None

    # Messages.

    def _gather(self, grid: Grid, messages: Iterable[Message], timeout: float) -> Iterable[Message]:
        server = self.settings.server
        return gather(grid, messages, timeout, quorum=server.quorum, grace=server.grace)

    def _messages(
        self, kind: str, told: Instructions, *, config: ConfigRecord, arrays: ArrayRecord
    ) -> list[Message]:
        """Return a message for each node that is asked."""
        return self.letters.write(
            kind,
            told,
            asked=self._asked,
            standing=self.standing,
            config=config,
            arrays=arrays,
        )


def _told(scores: Mapping[str, Any]) -> MetricRecord:
    """Return the server's scores on the test part as Flower's result has them."""
    best_way = list(scores.get("test", {"mean": {}}).values())[-1]
    return MetricRecord({key: float(value) for key, value in best_way.items()})
