"""How well a class is told from the others by its probability: AUROC, AUPRC and sensitivity.

Clients tell how many of their examples, of the class and of others, fall into fine bins of the
probability, and what follows from all clients' bins together is the score. Bins are of the same
width in log p/(1-p); examples in one bin count as tied.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NUM_BINS = 240
FURTHEST = 12.0  # of log p/(1-p): what lies beyond is in the outermost bins
EDGES = np.linspace(-FURTHEST, FURTHEST, NUM_BINS + 1)[1:-1]
OF_A_CLASS = Callable[[np.ndarray, np.ndarray], float]  # from its bins and those of the others


def bin_counts(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return how many examples fall into each bin, flat: (classes, of it and of others, bins)."""
    clipped = np.clip(np.asarray(probabilities, np.float64), 1e-12, 1 - 1e-12)
    bins = np.searchsorted(EDGES, np.log(clipped) - np.log1p(-clipped))
    counts = np.zeros((clipped.shape[1], 2, NUM_BINS))
    for number in range(clipped.shape[1]):
        of_it = labels == number
        counts[number, 0] = np.bincount(bins[of_it, number], minlength=NUM_BINS)
        counts[number, 1] = np.bincount(bins[~of_it, number], minlength=NUM_BINS)
    return counts.reshape(-1)


def binned_auroc(inside: np.ndarray, others: np.ndarray) -> float:
    """Return P(in > other) + P(in = other)/2."""
    below = np.cumsum(others) - others
    return float((inside * (below + 0.5 * others)).sum() / (inside.sum() * others.sum()))


def binned_auprc(inside: np.ndarray, others: np.ndarray) -> float:
    """Return the average precision, sum over thresholds of precision times the gain in recall.

    The precision of a bin is that in its middle, as if its examples were in random order.
    """
    right = np.cumsum(inside[::-1]) - 0.5 * inside[::-1]
    wrong = np.cumsum(others[::-1]) - 0.5 * others[::-1]
    precision = right / np.where(right > 0, right + wrong, 1)
    return float((precision * inside[::-1]).sum() / inside.sum())


def sensitivity_at(specificity: float) -> OF_A_CLASS:
    """Return what gives the share of a class that is found at a threshold of this specificity."""

    def of_a_class(inside: np.ndarray, others: np.ndarray) -> float:
        """Return the sensitivity, between the two nearest thresholds by a straight line."""
        wrong = np.concatenate([[0.0], np.cumsum(others[::-1]) / others.sum()])
        found = np.concatenate([[0.0], np.cumsum(inside[::-1]) / inside.sum()])
        last = np.flatnonzero(wrong <= 1 - specificity + 1e-12)[-1]
        if last + 1 == len(wrong):
            return float(found[last])
        step = (1 - specificity - wrong[last]) / (wrong[last + 1] - wrong[last])
        return float(found[last] + step * (found[last + 1] - found[last]))

    return of_a_class


def by_class(sums: np.ndarray, of_a_class: OF_A_CLASS) -> np.ndarray:
    """Return a score of every class; NaN where there are no examples of it, or no others."""
    counts = sums.reshape(-1, 2, NUM_BINS)
    known = (counts.sum(axis=2) > 0).all(axis=1)
    values = [
        of_a_class(*pair) if sound else np.nan for pair, sound in zip(counts, known, strict=True)
    ]
    return np.array(values)


def overall(sums: np.ndarray, of_a_class: OF_A_CLASS) -> float:
    """Return the mean over classes; of two classes that of the second, which is called positive."""
    values = by_class(sums, of_a_class)
    if len(values) == 2:
        return float(values[1])
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


RANKINGS: dict[str, OF_A_CLASS] = {
    "auroc": binned_auroc,
    "auprc": binned_auprc,
    "sensitivity_at_80": sensitivity_at(0.80),
    "sensitivity_at_90": sensitivity_at(0.90),
    "sensitivity_at_95": sensitivity_at(0.95),
    "sensitivity_at_99": sensitivity_at(0.99),
}
