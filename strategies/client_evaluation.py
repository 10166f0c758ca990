"""The clients' scores: when they are asked for, and how they come over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord

from fedivon_app.core.client_scores import Tallies, from_metrics, gathered
from fedivon_app.core.conformal import told_histograms
from fedivon_app.core.scores import chosen_scores, values_of
from fedivon_app.core.settings import AnySettings
from fedivon_app.strategies.replies import reason, record_of
from fedivon_app.strategies.roll_call import Node, RollCall


@dataclass(frozen=True)
class ToldScores:
    """The tallies of the clients that told sound ones, and why others are missing, by partition."""

    tallies: dict[int, Tallies]
    missing: dict[int, str]

    def histograms(self) -> dict[int, np.ndarray]:
        """Return the clients' histograms of the global model's scores, for its calibration."""
        shared = {p: tallies["gm"] for p, tallies in self.tallies.items() if "gm" in tallies}
        return told_histograms(shared)


class ClientEvaluation:
    """The scores of a run's models on the clients' own test parts."""

    def __init__(self, settings: AnySettings, roll_call: RollCall):
        self.scores = chosen_scores(settings.evaluation.scores, settings.task)
        self._settings = settings
        self._roll_call = roll_call

    def is_due(self, server_round: int) -> bool:
        """Tell whether the clients' models are looked at after this round, as after the last."""
        every = self._settings.evaluation.clients_every
        last = server_round == self._settings.rounds
        return last or (bool(every) and server_round % every == 0)

    def asks(self, server_round: int) -> bool:
        """Tell whether clients are asked for scores in this round."""
        return bool(self._settings.evaluation.clients_every) and self.is_due(server_round)

    def able(self) -> list[Node]:
        """Return the nodes that have something to score a model on."""
        return [node for node in self._roll_call.nodes.values() if node.num_test]

    def read(self, replies: Iterable[Message], partition_of: Mapping[int, int]) -> ToldScores:
        """Return what the clients that were asked tell of their models.

        `partition_of` has the nodes that were asked, by node id. A client whose sums give no value
        of one of the scores is missing.
        """
        tallies: dict[int, Tallies] = {}
        missing = dict.fromkeys(partition_of.values(), "no reply in time")
        for message in replies:
            partition = partition_of.get(message.metadata.src_node_id)
            if partition is None:  # Flower's own word about a node that is gone
                continue
            if message.has_error():
                missing[partition] = reason(message)
                continue
            try:
                told = from_metrics(record_of(message, "metrics", MetricRecord))
                for ways in told.values():
                    for tally in ways.values():
                        values_of(tally, self.scores)
            except ValueError as error:  # a tally that cannot be one
                missing[partition] = str(error)
                continue
            tallies[partition] = told
            del missing[partition]
        return ToldScores(tallies, missing)

    def pooled(self, told: ToldScores) -> dict[str, dict[str, Any]]:
        """Return the scores for the round's record, pooled from the clients' sums."""
        return gathered(
            told.tallies,
            sizes={p: node.num_train for p, node in self._roll_call.nodes.items()},
            samples=self._settings.evaluation.samples,
            scores=self.scores,
        )


def scores_at_the_mean(found: Mapping[str, Mapping[str, Any]]) -> MetricRecord:
    """Return the scores of both models at their means as Flower's result has them."""
    told: dict[str, int | float | list[int] | list[float]] = {}
    for who, places in found.items():
        at_the_mean = next(iter(places.values()))["mean"]
        told |= {f"{who}-{key}": value for key, value in at_the_mean.items()}
    return MetricRecord(told)
