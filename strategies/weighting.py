"""Rules that weigh the clients: non-negative numbers with sum 1.

They are those of Fischer et al. 2024, section 2.6, Eq. 18 to 21.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.core.registry import Registry

SMALLEST_KL = 1e-9  # posteriors nearer than this count as equal: 0 would have an infinite inverse

# What a weighting is given: the clients' posteriors, their numbers of examples, and the server's
# posterior of the round before. It returns a number for each client, which need not sum to 1.
Weighting = Callable[[Iterable[Posterior], np.ndarray, Posterior | None], np.ndarray]


def equal(
    posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None
) -> np.ndarray:
    """Let all clients count the same."""
    return np.ones(len(sizes))


def size(
    posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None
) -> np.ndarray:
    """Let clients count by their numbers of training examples."""
    return sizes


def _from_others(posteriors: Iterable[Posterior]) -> list[list[float]]:
    """Return each client's divergences from all others, KL(q_k || q_j); this holds all at once."""
    held = list(posteriors)
    return [[q.kl(other) for j, other in enumerate(held) if j != k] for k, q in enumerate(held)]


def _inverse(divergences: Sequence[float]) -> np.ndarray:
    inverse: np.ndarray = 1 / np.maximum(divergences, SMALLEST_KL)
    return inverse


def max_discrepancy(
    posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None
) -> np.ndarray:
    """Let a client count little that is far from every other.

    gamma_k = max_j 1/KL(q_k || q_j), j != k, as the paper prints it.
    """
    return _inverse([min(others, default=1.0) for others in _from_others(posteriors)])


def farthest(
    posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None
) -> np.ndarray:
    """Let a client count little that is far from any other.

    gamma_k = 1/max_j KL(q_k || q_j), j != k: what the words maximum discrepancy say.
    """
    return _inverse([max(others, default=1.0) for others in _from_others(posteriors)])


def distance(
    posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None
) -> np.ndarray:
    """Let a client count little that went far from where the server was.

    gamma_k = 1/KL(q_previous || q_k).
    """
    if previous is None:
        raise ValueError("the weighting distance needs the server's posterior of the round before")
    return _inverse([previous.kl(q) for q in posteriors])


WEIGHTINGS: Registry[Weighting] = Registry(
    "weighting rule",
    {
        "equal": equal,
        "size": size,
        "max-discrepancy": max_discrepancy,
        "farthest": farthest,
        "distance": distance,
    },
)
FOR_POINTS = ("equal", "size")  # the others need a precision
OF_ONE_CLIENT = ("equal", "size", "distance")  # the others need all clients at once


def checked_for_points(name: str) -> str:
    """Return the name of a weighting that needs no precision, or of the user's own."""
    WEIGHTINGS.find(name)
    if name in WEIGHTINGS and name not in FOR_POINTS:
        raise ValueError(f"points have no precision to weigh by: use {' or '.join(FOR_POINTS)}")
    return name


def weigh(
    rule: str,
    posteriors: Iterable[Posterior],
    sizes: Sequence[int],
    previous: Posterior | None = None,
) -> np.ndarray:
    """Return the clients' weights by the rule of this name or import path; the sum is 1.

    `sizes` are the clients' numbers of training examples.
    """
    counts = np.asarray(sizes, np.float64)
    weighting = WEIGHTINGS.find(rule)
    if counts.size == 0 or not (counts > 0).all():
        raise ValueError(
            f"every client needs a positive number of examples; these are {counts.tolist()}"
        )
    raw = np.asarray(weighting(posteriors, counts, previous), np.float64)
    weights: np.ndarray = raw / raw.sum()
    return weights


def raw_weight(
    rule: str, own: Posterior, num_examples: int, previous: Posterior, largest: int
) -> float:
    """Return how much one client counts, before weights are divided by their sum.

    This is for weightings that need nothing of the other clients (`OF_ONE_CLIENT`). They are made
    numbers around 1, by the same factor for all: sizes are divided by the `largest` of a client,
    and divergences are those of a single parameter.
    """
    weighting = WEIGHTINGS.find(rule)
    weight = float(weighting([own], np.array([float(num_examples)]), previous)[0])
    factors = {"size": 1 / largest, "distance": len(own)}
    return weight * factors.get(rule, 1.0)
