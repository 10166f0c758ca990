"""The rounds of a run whose clients are aggregated securely: the server sees sums, and no reply."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedivon_app.core import client_scores
from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import RunError, SumLost
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.secure import tallies
from fedivon_app.core.secure.fixed_point import Layout, Summed
from fedivon_app.core.secure.messages import Session
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.client_evaluation import scores_at_the_mean
from fedivon_app.strategies.letters import Asked
from fedivon_app.strategies.merging import Outcome
from fedivon_app.strategies.replies import Replies
from fedivon_app.strategies.roll_call import Node
from fedivon_app.strategies.rounds import Rounds
from fedivon_app.strategies.secure_parts import TrainingSum
from fedivon_app.strategies.secure_sum import SECURE, SecureSum

log = logging.getLogger("fedivon")

_UNKNOWN = Payload(Posterior(np.empty(0)))  # in place of what only its client knows


class SecureRounds(Rounds):
    """Rounds in which each sum takes four messages to a client, of which the third is the task's.

    A round whose sum is lost, because too few clients stayed, leaves the posterior as it was.
    """

    _sum_now: SecureSum  # the sum of the task at hand
    _lost: str | None = None  # why it is lost before it was asked for
    _largest = 1  # number of examples among its clients
    _seconds: dict[str, float]

    # Training.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Begin the sum of a round, and return the messages that ask its clients to train."""
        messages = super().configure_train(server_round, arrays, config, grid)
        nodes = [n for n in self._asked.nodes if n.partition in self._asked.reporting]
        self._largest = max((self.roll_call.sizes[node.partition] for node in nodes), default=1)
        return self._begin(server_round, "train", nodes, messages, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """End the sum of a round, and make the next posterior of it."""
        reporting = _Reporting(replies, self._asked)
        sent = self.downlink.received(self.standing.payload)
        what = TrainingSum(self.strategy, sent, self._largest)
        summed = self._end(server_round, what.layout, reporting)
        there = [] if summed is None else self._sum_now.survivors
        self._note_sum(server_round, there, reporting.silent)
        if summed is None or not self._enough(len(there)):
            self._record.line["merged"] = False
            return None, None
        trained = what.read(summed.values, [self.roll_call.sizes[p] for p in there])
        total = trained.total
        self._record.note_weights(total.weights)
        given = self.merging.round(server_round, self.standing, weights=total.weights)
        outcome = Outcome(
            self.strategy.conclude(total, given),
            buffers=trained.buffers,
            partitions=[*there, *reporting.silent],
            loss=trained.loss,
            num_examples=trained.examples,
        )
        return self._advance(server_round, outcome)

    def _note_sum(self, server_round: int, there: Sequence[int], silent: Iterable[int]) -> None:
        """Record who is in the sum and who dropped out of it, as far as the server knows."""
        now = self._sum_now
        good = [
            Reply(
                partition=partition,
                num_examples=self.roll_call.sizes[partition],
                num_bytes=now.vector_bytes[partition],
                source=_UNKNOWN,
                metrics=now.spent.get(partition, {}),
            )
            for partition in there
        ]
        told: dict[int, dict[str, Any]] = {partition: {} for partition in silent}
        size = sum(now.vector_bytes.values())
        self._note(server_round, Replies(good, now.dropped, size, silent=told))
        self._record.line["seconds"] |= {"clients": [], **self._seconds}
        self._record.line["secure"] = {"clients": now.clients, "bytes": sum(now.num_bytes.values())}

    # Scores.

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Begin the sum of a round's scores, and return the messages that ask for them."""
        messages = list(super().configure_evaluate(server_round, arrays, config, grid))
        if not messages:
            return []
        return self._begin(server_round, "evaluate", self._asked.nodes, messages, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Record the scores over all clients' test examples together."""
        scores = self.client_evaluation.scores
        sizes = tallies.sizes_of(scores, self.settings.data.num_classes)
        summed = self._end(server_round, lambda count: tallies.layout(sizes, count), replies)
        self._record.note_unscored(self._sum_now.dropped)
        if summed is None:
            return None
        found = client_scores.summed(
            tallies.read(summed.values, sizes), self.settings.evaluation.samples, scores
        )
        self._record.note_scores(found)
        return scores_at_the_mean(found) if found else None

    # The sum.

    def _begin(
        self,
        server_round: int,
        what: Literal["train", "evaluate"],
        nodes: Sequence[Node],
        messages: Iterable[Message],
        grid: Grid,
    ) -> list[Message]:
        """Begin a sum over these nodes, and return the messages that ask its clients for vectors.

        Messages to others stay as they are. If the sum is lost already, nobody is asked at all.
        """
        began = time.perf_counter()
        told = self.letters.for_all(Instructions(round=server_round), self.standing)
        session = Session(run=told.run, round=server_round, what=what)
        server = self.settings.server
        self._sum_now = SecureSum(grid, session, nodes, server, told.client_state)
        self._lost = None
        try:
            self._sum_now.begin()
        except SumLost as error:
            self._lost = str(error)
            return []
        finally:
            self._seconds = {"secure": time.perf_counter() - began}
        asked = []
        of_sum = {node.node_id: node.partition for node in nodes}
        for message in messages:
            partition = of_sum.get(message.metadata.dst_node_id)
            if partition is None:
                asked.append(message)
            elif partition in self._sum_now.boxes:
                message.content[SECURE] = self._sum_now.record(partition, self._largest)
                asked.append(message)
        return asked

    def _end(
        self, server_round: int, layout: Callable[[int], Layout], replies: Iterable[Message]
    ) -> Summed | None:
        """Return what a sum says, or None, with a warning, where it is lost.

        Numbers that were cut off make it wrong, and end the run.
        """
        now = self._sum_now
        try:
            if self._lost is not None:
                raise SumLost(self._lost)
            summed = now.end(replies, layout(now.clients))
        except SumLost as error:
            log.warning("%s", error)
            return None
        if summed.clipped:
            wide = self.strategy.settings.privacy.wide_sums
            wider = "" if wide else "privacy.wide_sums=true, which takes more bytes; or "
            raise RunError(
                f"round {server_round}: {summed.clipped} numbers of the sum were beyond what "
                "secure aggregation can carry and were cut off, so that the sum is wrong: some "
                f"client's posterior is very far from what it was sent. Try {wider}smaller steps "
                "(client.learning_rate, client.epochs); or privacy.secure_aggregation=false"
            )
        return summed


class _Reporting:
    """The replies of clients that report, one by one; the others are noted as `silent`."""

    def __init__(self, replies: Iterable[Message], asked: Asked):
        self._replies = replies
        self._asked = asked
        self.silent: list[int] = []

    def __iter__(self) -> Iterator[Message]:
        for message in self._replies:
            partition = self._asked.partition_of.get(message.metadata.src_node_id)
            if partition is None or partition in self._asked.reporting:
                yield message
            elif not message.has_error():
                self.silent.append(partition)
