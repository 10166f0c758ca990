"""What ends a run early: numbers beyond all bounds, or clients none of which can train."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedivon_app.core.errors import DivergenceError, FaultKind, RunError
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import AnySettings
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.divergence import extremes, why_diverged
from fedivon_app.strategies.replies import Replies

PATIENCE = 3  # rounds in which every client may fail before any has trained


class Stops:
    """The reasons to end a run; `first` is the posterior against which growth is measured."""

    def __init__(self, settings: AnySettings, first: Posterior):
        self._limit = settings.server.max_growth
        self._patience = min(PATIENCE, settings.rounds)
        self._first_extremes = extremes(first)
        self._failed_rounds = 0  # at the start of the run, in which every client failed

    def check_replies(
        self,
        server_round: int,
        replies: Replies,
        *,
        has_trained: bool,
        who: Callable[[int], str],
    ) -> None:
        """End the run if nothing can come of it any more.

        A round in which nobody sent finite numbers ends it; so do a few at its start in which every
        client fails, for then nothing would ever be learned. `has_trained` tells whether any reply
        has been merged yet, and `who` what the log calls a partition's client.
        """
        if replies.all_dropped_for(FaultKind.NOT_FINITE):
            whose = "; ".join(f"partition {p}: {why}" for p, why in replies.dropped.items())
            raise DivergenceError(
                f"round {server_round}: the run diverged; no reply is finite ({whose})"
            )
        trained = replies.silent or has_trained
        if not trained and replies.all_dropped_for(FaultKind.CLIENT_ERROR):
            self._failed_rounds += 1
            if self._failed_rounds == self._patience:
                partition, fault = next(iter(replies.dropped.items()))
                raise RunError(
                    f"round {server_round}: no client can train; {who(partition)}: {fault}"
                )

    def check_merged(self, server_round: int, merged: Posterior, good: Sequence[Reply]) -> None:
        """End the run if the merged posterior is beyond all bounds."""
        if why := why_diverged(merged, self._first_extremes, self._limit, good):
            raise DivergenceError(f"round {server_round}: the run diverged; {why}")
