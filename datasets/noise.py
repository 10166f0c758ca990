"""Label noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedivon_app.datasets.base import Source, real_number

STREAM = 0x6E6F69  # of the seed


def flip(
    labels: np.ndarray, rate: float, num_classes: int, generator: np.random.Generator
) -> np.ndarray:
    """Return labels with symmetric noise (Van Rooyen et al. 2015).

    Each label becomes, with probability `rate`, another one, all others being equally likely.
    """
    real_number(rate, "label_noise", upto=1, zero=True)
    shift = generator.integers(1, num_classes, len(labels)) * (generator.random(len(labels)) < rate)
    return ((labels + shift) % num_classes).astype(labels.dtype)


def noisy(source: Source, rate: float, clients: Sequence[np.ndarray], seed: int) -> Source:
    """Return the source with flipped labels among the clients' training examples.

    What the server holds out, and all test examples, keep their labels.
    """
    rows = np.concatenate(list(clients))
    labels = np.array(source.y_train)
    generator = np.random.default_rng([seed, STREAM])
    labels[rows] = flip(labels[rows], rate, source.num_classes, generator)
    return replace(source, y_train=labels)
