"""The clients' scores as they come over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, MetricRecord

from fedivon_app.core.client_scores import Tallies, from_metrics
from fedivon_app.core.scores import Score, values_of
from fedivon_app.strategies.replies import reason, record_of


@dataclass(frozen=True)
class ToldScores:
    """The tallies of the clients that told sound ones, and why others are missing, by partition."""

    tallies: dict[int, Tallies]
    missing: dict[int, str]


def read_scores(
    replies: Iterable[Message], partition_of: Mapping[int, int], scores: Mapping[str, Score]
) -> ToldScores:
    """Return what the clients that were asked tell of their models.

    `partition_of` has the nodes that were asked, by node id. A client whose sums give no value of
    one of the `scores` is missing.
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
                    values_of(tally, scores)
        except ValueError as error:  # a tally that cannot be one
            missing[partition] = str(error)
            continue
        tallies[partition] = told
        del missing[partition]
    return ToldScores(tallies, missing)


def scores_at_the_mean(found: Mapping[str, Mapping[str, Any]]) -> MetricRecord:
    """Return the scores of both models at their means as Flower's result has them."""
    told: dict[str, int | float | list[int] | list[float]] = {}
    for who, places in found.items():
        at_the_mean = next(iter(places.values()))["mean"]
        told |= {f"{who}-{key}": value for key, value in at_the_mean.items()}
    return MetricRecord(told)
