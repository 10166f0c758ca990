"""What a round leaves in writing: its line of metrics, and warnings about single clients."""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

import numpy as np

from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.guard import precision_shares
from fedivon_app.strategies.history import History
from fedivon_app.strategies.replies import Replies
from fedivon_app.strategies.roll_call import RollCall
from fedivon_app.strategies.vetting import Screened

log = logging.getLogger("fedivon")

Record = dict[str, Any]  # a round's line of metrics
CALIBRATION = "calibration"  # in a record: histograms by partition, for the observer to keep


class RoundRecord:
    """The record of one round, in which `line` grows as the round goes on.

    Clients whose replies are dropped or bounded are named in the log as well, by the names that
    the roll call has for them.
    """

    def __init__(self, number: int, roll_call: RollCall):
        self.number = number
        self.line: Record = {"round": number}
        self._roll_call = roll_call

    def note_replies(self, replies: Replies, *, with_silent: bool) -> None:
        """Record who answered what; `with_silent` also counts who trained without a report."""
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
        self.line |= {"bytes_up": replies.num_bytes, "dropped": dropped}
        if with_silent:
            self.line["silent"] = len(replies.silent)
        self.line |= {
            "seconds": {"clients": [client.pop("seconds", None) for client in clients]},
            "clients": clients,
        }
        for partition, fault in replies.dropped.items():
            self._warn_of_drop(partition, fault)

    def note_screening(self, found: Screened, before: History) -> None:
        """Record who was cut back, dropped or left out, given the clients' history before that."""
        for partition, excess in found.bounded.items():
            for what, times in excess.items():
                log.warning(
                    "round %d: the reply of %s is bounded: its %s is %.3g times the median",
                    self.number,
                    self._roll_call.who(partition),
                    what,
                    times,
                )
        for client in self.line["clients"]:
            if client["partition"] in found.bounded:
                client["bounded"] = dict(found.bounded[client["partition"]])
        for partition, why in found.dropped.items():
            self._warn_of_drop(partition, why)
            self.line["dropped"].append({"partition": partition, "reason": why})
        for partition in sorted(found.history.left_out - before.left_out):
            who = self._roll_call.who(partition)
            log.warning("round %d: %s is left out from now on", self.number, who)
        if found.history.left_out:
            self.line["left_out"] = sorted(found.history.left_out)
        self._forget(found.dropped)

    def note_not_chosen(self, partitions: Collection[int]) -> None:
        """Record whose replies the robust merge did not choose, if it left out any."""
        if partitions:
            self.line["not_chosen"] = sorted(partitions)
            self._forget(partitions)

    def note_ruin(self) -> None:
        """Record that every merge of the replies would ruin the model, and tell it."""
        self.line["merged"] = False
        log.warning(
            "round %d: any merge of its replies would make the model much worse on the server's "
            "own examples; the posterior stays as it was",
            self.number,
        )

    def note_weights(self, weights: np.ndarray, good: Sequence[Reply] = ()) -> None:
        """Record how much each reply counts in the merge, as far as it is known.

        With the replies themselves, so is each one's share of the precision.
        """
        shares = precision_shares(good, weights) if good else None
        for k, client in enumerate(self.line["clients"]):
            if np.isfinite(weights[k]):
                client["weight"] = float(weights[k])
            if shares:
                client["precision_share"] = shares[k]

    def note_enough(self, count: int, least: int) -> bool:
        """Record whether so many good replies are enough for a merge, and tell it."""
        enough = count >= least
        self.line["merged"] = enough
        if not enough:
            log.warning(
                "round %d: %d good replies of at least %d; the posterior stays as it was",
                self.number,
                count,
                least,
            )
        return enough

    def note_scores(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Record scores of the models, which are `gm` and `pm`."""
        for model, scores in found.items():
            self.line.setdefault(model, {}).update(scores)

    def note_unscored(self, missing: Mapping[int, object]) -> None:
        """Name the clients whose scores are missing, with the reason; the line has the others."""
        for partition, why in missing.items():
            who = self._roll_call.who(partition)
            log.warning("round %d: no scores of %s: %s", self.number, who, why)

    def _warn_of_drop(self, partition: int, why: object) -> None:
        who = self._roll_call.who(partition)
        log.warning("round %d: dropped the reply of %s: %s", self.number, who, why)

    def _forget(self, partitions: Container[int]) -> None:
        """Take clients whose replies are not merged out of the line."""
        clients = self.line["clients"]
        self.line["clients"] = [c for c in clients if c["partition"] not in partitions]

    def _named(self, partition: int) -> dict[str, str]:
        """Return what a site calls itself; simulated clients have no names."""
        node = self._roll_call.nodes.get(partition)
        return {"name": node.name} if node and node.name else {}
