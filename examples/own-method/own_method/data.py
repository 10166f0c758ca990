"""A data source: a CSV file with a column of labels."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np


def load(
    *, path: Path, label: str = "label", test_share: float = 0.2, seed: int = 0
) -> dict[str, np.ndarray]:
    """Read a table of numbers; a share of its rows, drawn by the seed, is the test part.

    The names of the parameters are those of `data.options`, besides `path` and `seed`, which every
    source may take.
    """
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name != label]
    inputs = np.array([[float(row[name]) for name in names] for row in rows], np.float32)
    labels = np.array([int(row[label]) for row in rows])
    order = np.random.default_rng(seed).permutation(len(rows))
    cut = round(test_share * len(rows))
    test = order[:cut]
    train = order[cut:]
    return {
        "x_train": inputs[train],
        "y_train": labels[train],
        "x_test": inputs[test],
        "y_test": labels[test],
    }
