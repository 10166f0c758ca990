"""What stands between the replies of a round and their merge.

In this order: the lies of a simulated attack, the guard, the clients' history, and, when weights
are known, the robust merge. Each is a value of its own; this puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.attacks import Attack
from fedivon_app.strategies.base import PosteriorStrategy, Reply
from fedivon_app.strategies.claims import claimed
from fedivon_app.strategies.guard import Bounds, Findings, Guarded, guarded
from fedivon_app.strategies.history import History
from fedivon_app.strategies.portraits import LESS
from fedivon_app.strategies.robust_merge import Vetted, vetted
from fedivon_app.strategies.sketch import Sketch
from fedivon_app.strategies.trial import Trial, slopes


@dataclass(frozen=True)
class Screened:
    """The replies that may be merged, and what was found in the others.

    `bounded` has who was cut back, `dropped` the reasons for which others are left out, and
    `discontented` who counts less.
    """

    replies: list[Reply]
    bounded: Findings
    dropped: dict[int, str]
    history: History
    discontented: frozenset[int] = frozenset()


class Vetting:
    """The checks of a run, by its settings; `trial` is the server's own, if it has examples."""

    def __init__(self, strategy: PosteriorStrategy[Any], length: int, trial: Trial | None = None):
        settings = strategy.settings
        liars = settings.attack.liars(settings.data.clients or 0, settings.seed)
        self.strategy = strategy
        self.settings = settings
        self.attack = Attack(settings.attack, liars, settings.seed)
        self.bounds = Bounds(
            precision=settings.server.precision_bound,
            change=settings.server.change_bound,
            size=settings.server.size_bound,
        )
        self._trial = trial if strategy.takes_replies_whole else None
        self._sketch = Sketch.of(length, settings.seed) if settings.keeps_history else None

    def attacked(
        self,
        number: int,
        replies: Sequence[Reply],
        sent: Payload,
        merge: Callable[[Screened], Posterior],
        history: History,
    ) -> list[Reply]:
        """Return a round's replies as the liars have them; `merge` is what the server would do."""
        if not self.attack.liars:
            return list(replies)

        def tried(lies: Sequence[Reply]) -> Posterior:
            passed = self.screened(number, lies, sent, history)
            return merge(passed) if passed.replies else sent.posterior

        return self.attack.forged(number, replies, sent.posterior, tried)

    def screened(
        self, number: int, replies: Sequence[Reply], sent: Payload, history: History
    ) -> Screened:
        """Return the replies that pass the guard and whose clients' record is in order.

        A reply that exceeds a bound is cut back, or dropped where the method takes replies whole.
        """
        result = self._guarded(replies, sent)
        bounded = result.findings
        kept = result.replies
        dropped: dict[int, str] = {}
        if self.strategy.takes_replies_whole:
            dropped = {partition: _told(found) for partition, found in bounded.items()}
            kept = [reply for reply in replies if reply.partition not in bounded]
            bounded = {}
        if self._sketch is not None:
            history = self._seen(number, kept, sent, history, self._sketch)
            doubts = history.doubts(coupled=self.strategy.takes_replies_whole)
            gone = history.left_out
            for reply in kept:
                if reply.partition in doubts:
                    dropped[reply.partition] = str(doubts[reply.partition])
                elif reply.partition in gone:
                    dropped[reply.partition] = "it has been in doubt too often"
            kept = [reply for reply in kept if reply.partition not in dropped]
        return Screened(
            kept,
            bounded,
            dropped=dropped,
            history=history,
            discontented=frozenset() if self._sketch is None else history.discontented(),
        )

    def weighed(self, screened: Screened, sent: Payload, moved: np.ndarray | None = None) -> Vetted:
        """Return the replies with their weights, as the robust merge of the settings has them.

        `moved` is the last move of the mean, if that is remembered.
        """
        replies = screened.replies
        weights = self.strategy.weigh(replies, sent.posterior)
        if self.settings.merge.robust == "none" and not screened.discontented:
            return Vetted(list(replies), weights)
        less = [reply.partition in screened.discontented for reply in replies]
        if any(less) and not self.strategy.takes_replies_whole:
            weights = np.where(less, LESS * weights, weights)
            weights = weights / weights.sum()
        return vetted(
            replies,
            weights=weights,
            sent=sent,
            options=self.settings.merge,
            whole=self.strategy.takes_replies_whole,
            moved=moved,
        )

    def _guarded(self, replies: Sequence[Reply], sent: Payload) -> Guarded:
        return guarded(
            replies,
            sent.posterior,
            blocks=self.strategy.architecture.blocks,
            bounds=self.bounds,
            batch_size=self.settings.client.batch_size,
        )

    def _seen(
        self,
        number: int,
        replies: Sequence[Reply],
        sent: Payload,
        history: History,
        sketch: Sketch,
    ) -> History:
        """Return the clients' record after this round's replies."""
        rate = self.settings.client.rate_in(number, self.settings.rounds)
        server = sent.posterior
        changes = {r.partition: sketch(r.posterior.mean - server.mean) / rate for r in replies}
        claims = claimed(replies, server)
        steps = {} if self._trial is None else slopes(replies, sent, self._trial)
        after = history.seen(changes, sketch(server.mean), claims, steps)
        doubted = frozenset(after.doubts(coupled=self.strategy.takes_replies_whole)) & frozenset(
            changes
        )
        return after.judged(doubted, number, self.settings.server.leave_out_after)


def _told(found: dict[str, float]) -> str:
    return ", ".join(f"its {what} is {by:.3g} times the median" for what, by in found.items())
