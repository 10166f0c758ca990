"""Rules that weigh the clients: non-negative numbers with sum 1 (Fischer et al. 2024, section 2.6, Eq. 18 to 21)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import nearest

SMALLEST_KL = 1e-9  # posteriors nearer than this count as equal: a divergence of 0 would have an infinite inverse


def _equal(
    posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None
) -> np.ndarray:
    return np.ones(len(sizes))


def _size(
    posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None
) -> np.ndarray:
    return sizes


def _max_discrepancy(
    posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None
) -> np.ndarray:
    """gamma_k = max_j 1/KL(q_k || q_j), j != k: little for a client that is far from every other. Holds them all."""
    posteriors = list(posteriors)
    if len(posteriors) == 1:
        return np.ones(1)
    others = [[*posteriors[:k], *posteriors[k + 1 :]] for k in range(len(posteriors))]
    nearest_kl = [min(map(q.kl, rest)) for q, rest in zip(posteriors, others, strict=True)]
    return 1 / np.maximum(nearest_kl, SMALLEST_KL)


def _distance(
    posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None
) -> np.ndarray:
    """gamma_k = 1/KL(q_previous || q_k): little for a client that went far from where the server was."""
    if previous is None:
        raise ValueError("the weighting distance needs the server's posterior of the round before")
    return 1 / np.maximum([previous.kl(q) for q in posteriors], SMALLEST_KL)


RULES: dict[str, Callable[..., np.ndarray]] = {
    "equal": _equal,
    "size": _size,
    "max-discrepancy": _max_discrepancy,
    "distance": _distance,
}
FOR_POINTS = ("equal", "size")  # the others need a precision


def weigh(
    rule: str,
    posteriors: Iterable[Posterior],
    sizes: Sequence[int],
    previous: Posterior | None = None,
) -> np.ndarray:
    """The clients' weights by the rule of this name; `sizes` are their numbers of training examples."""
    if rule not in RULES:
        raise ValueError(f"there is no weighting rule {rule!r}: {nearest(rule, RULES)}")
    counts = np.asarray(sizes, np.float64)
    if counts.size == 0 or not (counts > 0).all():
        raise ValueError(
            f"every client needs a positive number of examples; these are {counts.tolist()}"
        )
    raw = RULES[rule](posteriors, counts, previous)
    return raw / raw.sum()
