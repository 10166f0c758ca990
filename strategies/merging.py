"""From the replies of a round to where the run stands after it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import Merged, PosteriorStrategy, Reply, Round
from fedivon_app.strategies.downlink import Downlink
from fedivon_app.strategies.history import History
from fedivon_app.strategies.robust_merge import Vetted
from fedivon_app.strategies.roll_call import RollCall
from fedivon_app.strategies.standing import Standing
from fedivon_app.strategies.taken_back import additions, has_room, settled
from fedivon_app.strategies.trial import (
    COUPLED,
    RUIN,
    Trial,
    at_hand,
    downhill,
    harmless,
    rises,
)
from fedivon_app.strategies.vetting import Screened, Vetting


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a round's clients, those of these `partitions`.

    `good` are their replies and `history` what the guard found, where single ones are known.
    """

    merged: Merged
    buffers: np.ndarray | None
    partitions: Sequence[int]
    loss: float | None
    num_examples: int
    good: Sequence[Reply] = ()
    history: History | None = None


class Merging:
    """The vetting and the merge of a run's replies; `length` is that of the posterior.

    With a `trial`, who makes the merge worse on the server's own examples is left out.
    """

    def __init__(
        self,
        strategy: PosteriorStrategy[Any],
        length: int,
        *,
        downlink: Downlink,
        roll_call: RollCall,
        trial: Trial | None = None,
    ):
        self.vetting = Vetting(strategy, length, trial)
        self._trial = trial
        self._takes_back = strategy.takes_replies_whole and strategy.settings.keeps_history
        self._strategy = strategy
        self._downlink = downlink
        self._roll_call = roll_call

    def screened(self, server_round: int, replies: Sequence[Reply], standing: Standing) -> Screened:
        """Return the replies that may be merged, and what was found in the others."""
        previous = self._downlink.received(standing.payload)

        def tried(passed: Screened) -> Posterior:
            kept = self.weighed(server_round, passed, standing)
            if not kept.replies:
                return previous.posterior
            return self._merge(server_round, kept, standing).posterior

        received = self.vetting.attacked(server_round, replies, previous, tried, standing.history)
        return self.vetting.screened(server_round, received, previous, standing.history)

    def weighed(self, server_round: int, screened: Screened, standing: Standing) -> Vetted:
        """Return the replies that are merged, with their weights; none if all would be ruin."""
        previous = self._downlink.received(standing.payload)
        vetted = self.vetting.weighed(screened, previous, standing.moved)
        if self._trial is None:
            return vetted
        return self._tried(server_round, vetted, standing, self._trial)

    def outcome(
        self,
        server_round: int,
        kept: Vetted,
        standing: Standing,
        *,
        silent: Iterable[int],
        history: History,
    ) -> Outcome:
        """Return what the method makes of the replies; `silent` trained without a report."""
        good = kept.replies
        merged = self._merge(server_round, kept, standing)
        return Outcome(
            self._settled(server_round, merged, good, standing, history.left_out),
            buffers=self._buffers(kept, standing),
            partitions=[*(reply.partition for reply in good), *silent],
            loss=_mean_loss(good),
            num_examples=sum(reply.num_examples for reply in good),
            good=good,
            history=history,
        )

    def round(
        self,
        server_round: int,
        standing: Standing,
        *,
        weights: np.ndarray,
        replies: Sequence[Reply] = (),
    ) -> Round:
        """Return what a method's merge is given."""
        return Round(
            number=server_round,
            replies=replies,
            weights=weights,
            previous=self._downlink.received(standing.payload),
            num_clients=self._strategy.settings.data.clients or len(self._roll_call.nodes),
            first=not standing.last_merged,
            state=standing.state,
        )

    def advanced(self, server_round: int, standing: Standing, outcome: Outcome) -> Standing:
        """Return where the run stands when this has come of the round; the round is not over."""
        merged = outcome.merged
        previous = self._downlink.received(standing.payload)
        payload = Payload(
            posterior=merged.posterior,
            buffers=outcome.buffers,
            extras=previous.extras if merged.extras is None else merged.extras,
        )
        merged_now = dict.fromkeys(outcome.partitions, server_round)
        remembers = self._strategy.settings.merge.robust_memory > 0
        return Standing(
            round=standing.round,
            payload=self._downlink.carried(standing.payload, payload),
            state=merged.state,
            last_merged={**standing.last_merged, **merged_now},
            history=standing.history if outcome.history is None else outcome.history,
            moved=merged.posterior.mean - previous.posterior.mean if remembers else None,
        )

    def _tried(self, server_round: int, vetted: Vetted, standing: Standing, trial: Trial) -> Vetted:
        """Return the replies that lead downhill and do no harm to each other's merge."""
        vetted = replace(vetted, replies=at_hand(vetted.replies))
        staying = (len(vetted.replies) + 1) // 2
        coupled = self._strategy.takes_replies_whole
        sent = self._downlink.received(standing.payload)
        if not coupled:
            vetted = vetted.only(downhill(rises(vetted.replies, sent, trial)))

        def loss(places: Sequence[int]) -> float:
            some = vetted.only(places)
            merged = self._merge(server_round, some, standing)
            return trial(Payload(merged.posterior, self._buffers(some, standing)))

        least = COUPLED if coupled else 0.0
        most = inf if coupled else trial(sent) + RUIN
        kept = harmless(len(vetted.replies), loss, least=least, staying=staying, most=most)
        return vetted.only(kept)

    def _settled(
        self,
        server_round: int,
        merged: Merged,
        replies: Sequence[Reply],
        standing: Standing,
        gone: Collection[int],
    ) -> Merged:
        """Return a merge without what those who are left out added to the method's sums."""
        if not self._takes_back:
            return merged
        one = np.ones(1)

        def alone(reply: Reply) -> Merged:
            of = self.round(server_round, standing, weights=one, replies=[reply])
            return self._strategy.merge(of)

        clients = self.round(server_round, standing, weights=one).num_clients
        if not has_room(merged.state, clients):
            return merged
        added = additions(replies, standing.state, alone)
        return replace(merged, state=settled(standing.state, merged.state, added, gone))

    def _buffers(self, kept: Vetted, standing: Standing) -> np.ndarray | None:
        if self._downlink.received(standing.payload).buffers is None:
            return None
        return _average_buffers(kept.replies, kept.weights)

    def _merge(self, server_round: int, kept: Vetted, standing: Standing) -> Merged:
        """Return what the method makes of the replies; nothing else comes of it."""
        of = self.round(server_round, standing, weights=kept.weights, replies=kept.replies)
        return self._strategy.merge(of)


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
