"""Prediction sets with a promised coverage, by split-conformal calibration from pooled histograms.

The score of class c is s_c = 1 - p_c (Sadinle, Lei and Wasserman 2019). Over n examples that
nobody trained on, let q be the ceil((n + 1) coverage)-th smallest score of the true classes. The
set {c : s_c <= q} then holds the true class of a new example with at least that probability, if
the new example and the n come in random order (Vovk et al. 2005; Angelopoulos and Bates 2023,
section 1).

Clients tell how many scores lie in each bin, and nothing else. The threshold is the upper edge of
the bin in which q lies, so that it is never below q: the promise holds as it is, and the sets are
larger by less than a bin. Bins are even in log(s / (1 - s)): each is 2 % of s, or of 1 - s, wide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from fedivon_app.core.client_scores import WORST
from fedivon_app.core.scores import Score
from fedivon_app.core.tally import Pooled

SETS = "sets"  # the name of the sums in a tally
REACH = 10.0  # of the bins, as log(s / (1 - s)); what lies beyond has a bin at each end
BINS = 1002
EDGES = np.concatenate(
    [[0.0], 1 / (1 + np.exp(-np.linspace(-REACH, REACH, BINS - 1, dtype=np.float64))), [1.0]]
)


def histograms(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return how many scores lie in each bin, (2, BINS): of the true classes, and of all classes.

    Bin b holds the scores in (EDGES[b], EDGES[b + 1]], the first also 0.
    """
    scores = class_scores(probabilities)
    bins = np.clip(np.searchsorted(EDGES, scores, side="left") - 1, 0, BINS - 1)
    true = bins[np.arange(len(labels)), labels]
    counts = [np.bincount(places.ravel(), minlength=BINS) for places in (true, bins)]
    return np.stack(counts).astype(np.float64)


def class_scores(probabilities: np.ndarray) -> np.ndarray:
    """Return 1 - p of every class, from probabilities as clients have them, in float32."""
    return 1 - np.asarray(probabilities, np.float32).astype(np.float64)


def threshold_of(counts: np.ndarray, coverage: float, distinct: float | None = None) -> float:
    """Return the largest score of a class in a set, by the counts of the true classes' scores.

    `distinct` says how many different examples these are of, where clients of a simulation share
    some; n is that number then, and the rank is taken in proportion. With too few examples for the
    coverage the threshold is 1, so that sets hold every class.
    """
    total = counts.sum()
    number = total if distinct is None else min(distinct, total)
    share = ceil(round((number + 1) * coverage, 9)) / number if number else np.inf
    if share > 1:
        return 1.0
    rank = ceil(round(share * total, 9))
    place = int(np.searchsorted(np.cumsum(counts), rank))
    return float(EDGES[place + 1])


def prediction_sets(probabilities: np.ndarray, threshold: float) -> np.ndarray:
    """Return which classes are in the sets, (N, C) booleans."""
    return class_scores(probabilities) <= threshold


def share_below(counts: np.ndarray, threshold: float) -> float:
    """Return the share of scores up to a threshold that is an edge of the bins."""
    place = int(np.searchsorted(EDGES, threshold))
    return float(counts[:place].sum() / counts.sum())


@dataclass(frozen=True)
class Coverage:
    """What sets with this threshold come to.

    `overall` and `worst_tenth` are the coverages over all examples, and over the clients that are
    covered worst; each client's is measured with a threshold that the other clients alone gave.
    They are None for a single client. `size` is the mean number of classes in a set.
    """

    level: float
    threshold: float
    examples: int
    clients: int
    size: float
    overall: float | None
    worst_tenth: float | None


def coverage_of(
    clients: Mapping[int, np.ndarray], level: float, distinct: int | None = None
) -> Coverage:
    """Return the sets' threshold for a coverage, and what it comes to at the clients.

    `clients` has what `histograms` gave, by partition; `distinct` is as in `threshold_of`.
    """
    counts = {p: np.asarray(one).reshape(2, BINS) for p, one in clients.items()}
    true, every = sum(counts.values(), np.zeros((2, BINS)))
    told = true.sum()
    if not told:
        raise ValueError("there are no held-out examples to calibrate with")
    share = 1.0 if distinct is None else distinct / told  # of what was told: different examples
    threshold = threshold_of(true, level, share * told)
    overall = worst = None
    if len(counts) > 1:
        shares = {}
        for partition, (own, _) in counts.items():
            others = true - own
            without = threshold_of(others, level, share * others.sum())
            shares[partition] = share_below(own, without)
        sizes = [one[0].sum() for one in counts.values()]
        overall = float(np.average(list(shares.values()), weights=sizes))
        least = np.sort(list(shares.values()))[: max(1, round(WORST * len(shares)))]
        worst = float(least.mean())
    return Coverage(
        level=level,
        threshold=threshold,
        examples=round(share * told),
        clients=len(counts),
        size=share_below(every, threshold) * every.sum() / told,
        overall=overall,
        worst_tenth=worst,
    )


def told_histograms(tallies: Mapping[int, Mapping[str, Pooled]]) -> dict[int, np.ndarray]:
    """Return the histograms of clients that told sound ones, by the best way of predicting.

    `tallies` are those of one model, by partition and way (`mean`, `mc`).
    """
    found = {}
    for partition, ways in tallies.items():
        tally = ways.get("mc", ways["mean"])
        sums = tally.sums.get(SETS)
        if sums is None or sums.size != 2 * BINS or (sums < 0).any():
            continue
        counts = sums.reshape(2, BINS)
        if counts[0].sum() == tally.count and (counts[0] <= counts[1]).all():
            found[partition] = counts
    return found


def _sums(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return histograms(probabilities, labels).ravel()


# What a client adds to its tallies where the settings want sets; it has no value of its own.
SETS_SUMS = Score(
    name=SETS, label="sets", higher_is_better=False, value=lambda t: float("nan"), sums=_sums
)
