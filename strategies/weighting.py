"""Rules that weigh the clients: non-negative numbers with sum 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import nearest


def _equal(posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None) -> np.ndarray:
    return np.ones(len(sizes))


def _size(posteriors: Iterable[Posterior], sizes: np.ndarray, previous: Posterior | None) -> np.ndarray:
    return sizes


RULES: dict[str, Callable[..., np.ndarray]] = {"equal": _equal, "size": _size}


def weigh(
    rule: str, posteriors: Iterable[Posterior], sizes: Sequence[int], previous: Posterior | None = None
) -> np.ndarray:
    """The clients' weights by the rule of this name; `sizes` are their numbers of training examples."""
    if rule not in RULES:
        raise ValueError(f"there is no weighting rule {rule!r}: {nearest(rule, RULES)}")
    counts = np.asarray(sizes, np.float64)
    if counts.size == 0 or not (counts > 0).all():
        raise ValueError(f"every client needs a positive number of examples; these are {counts.tolist()}")
    raw = RULES[rule](posteriors, counts, previous)
    return raw / raw.sum()
