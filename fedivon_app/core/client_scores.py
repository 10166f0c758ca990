"""Scores on the clients' own test parts: how they travel, pooled, by client, and how they spread.

Whose model is scored, and when, is in the names: the global model (GM) as it was merged, before
local training, and a client's personal model (PM) as its own training left it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from fedivon_app.core.scores import SCORES, Score, headline, tally_from, values_of
from fedivon_app.core.tally import Pooled

PLACES = {"gm": "clients_before_training", "pm": "clients_after_training"}  # in a round's record
Tallies = Mapping[str, Mapping[str, Pooled]]  # whose model (gm, pm) -> way (mean, mc) -> tally
WORST = 0.1


def to_metrics(tallies: Tallies) -> dict[str, Any]:
    """Return the tallies as one flat dictionary, fit for a Flower MetricRecord."""
    return {
        f"{who}.{way}.{name}": value
        for who, ways in tallies.items()
        for way, tally in ways.items()
        for name, value in tally.to_dict().items()
    }


def from_metrics(metrics: Mapping[str, Any]) -> dict[str, dict[str, Pooled]]:
    """Return the inverse of `to_metrics`.

    What has no such name is left alone; what cannot be scored is a ValueError.
    """
    values: dict[str, dict[str, dict[str, Any]]] = {}
    for key, value in metrics.items():
        who, _, rest = key.partition(".")
        way, _, name = rest.partition(".")
        if who in PLACES and name:
            values.setdefault(who, {}).setdefault(way, {})[name] = value
    found = {who: {way: tally_from(v) for way, v in ways.items()} for who, ways in values.items()}
    for who, ways in found.items():
        if "mean" not in ways or not all(tally.count for tally in ways.values()):
            raise ValueError(
                f"the scores of the {who.upper()} are of no examples, or not at its mean"
            )
    return found


def gathered(
    replies: Mapping[int, Tallies],
    sizes: Mapping[int, int],
    samples: int,
    scores: Mapping[str, Score] = SCORES,
) -> dict[str, dict[str, Any]]:
    """Return the clients' scores for a round's record, as {"gm": {place: ...}, "pm": {place: ...}}.

    `replies` are by partition, `sizes` the clients' numbers of training examples. Under a way
    ("mean", "mc") are the scores over all clients' examples together, from pooled sums;
    `by_client` has each client's own, and `over_clients` their spread.
    """
    record: dict[str, dict[str, Any]] = {}
    for who, place in PLACES.items():
        scored = {p: tallies[who] for p, tallies in sorted(replies.items()) if who in tallies}
        if not scored:
            continue
        pooled = {
            way: reduce(add, (tallies[way] for tallies in scored.values()))
            for way in ("mean", "mc")
            if all(way in tallies for tallies in scored.values())
        }
        part = _scored(pooled, samples, scores)
        by_client = []
        for partition, tallies in scored.items():
            client: dict[str, Any] = {
                "partition": partition,
                "num_train": sizes.get(partition, 0),
                **values_of(tallies["mean"], scores),
            }
            if "mc" in part:
                client["mc"] = values_of(tallies["mc"], scores)
            by_client.append(client)
        record[who] = {place: part | {"by_client": by_client, "over_clients": spread(by_client)}}
    return record


def summed(
    tallies: Tallies, samples: int, scores: Mapping[str, Score] = SCORES
) -> dict[str, dict[str, Any]]:
    """Return the same where tallies are known as sums over all clients alone, and of none."""
    return {
        who: {PLACES[who]: {**_scored(ways, samples, scores), "by_client": [], "over_clients": {}}}
        for who, ways in tallies.items()
    }


def _scored(
    pooled: Mapping[str, Pooled], samples: int, scores: Mapping[str, Score]
) -> dict[str, Any]:
    """Return the scores of pooled tallies by the way of predicting."""
    return {
        way: values_of(tally, scores) | ({"samples": samples} if way == "mc" else {})
        for way, tally in pooled.items()
    }


def spread(by_client: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return how the clients' accuracies spread, at the mean and where they are by Monte Carlo.

    Where a number is predicted, it is their RMSE, which `score` says. Every client counts once in
    `mean` and `std`, by its training examples in `weighted`; `worst_decile` is the mean over the
    worst tenth, one client at the least.
    """
    sizes = np.array([client["num_train"] for client in by_client], np.float64)
    ways: dict[str, list[dict[str, Any] | None]] = {
        "mean": list(by_client),
        "mc": [client.get("mc") for client in by_client],
    }
    found = {}
    for way, scores in ways.items():
        known = [score for score in scores if score]
        if not known or len(known) < len(scores):
            continue
        shown = headline(known[0])
        values = np.array([score[shown.name] for score in known])
        order = np.sort(values) if shown.higher_is_better else -np.sort(-values)
        worst = order[: max(1, round(WORST * len(values)))]
        found[way] = {
            "mean": float(values.mean()),
            "weighted": float(np.average(values, weights=sizes if sizes.sum() else None)),
            "std": float(values.std()),
            "worst_decile": float(worst.mean()),
            "clients": len(values),
            **({} if shown.name == "accuracy" else {"score": shown.name}),
        }
    return found
