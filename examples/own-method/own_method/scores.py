"""A score: how far the right class is ahead of the next."""

from __future__ import annotations

import numpy as np

from fedivon_app.core.scores import Score


def margins(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the sum over examples of p_y less the largest probability of another class."""
    rows = np.arange(len(labels))
    others = probabilities.copy()
    others[rows, labels] = -np.inf
    total: np.ndarray = (probabilities[rows, labels] - others.max(axis=1)).sum(keepdims=True)
    return total


MARGIN = Score(
    name="margin",
    label="Margin",
    higher_is_better=True,
    sums=margins,
    value=lambda tally: float(tally.sums["margin"][0] / tally.count),
)
