"""What a client says before the first round: what data it has, and the sums of their columns."""

from __future__ import annotations

from pathlib import Path
from platform import node
from typing import Any

import numpy as np

from fedivon_app.clients.poison import claimed_size, lies
from fedivon_app.core.errors import RunError
from fedivon_app.core.likelihood import Likelihood
from fedivon_app.core.privacy import Plan
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.standardise import ColumnSums
from fedivon_app.datasets.loading import classes
from fedivon_app.datasets.node_data import Partition


def check_seen(place: str) -> None:
    """Refuse to work where things are to be kept in a run's folder that is not seen from here."""
    if not Path(place).parent.is_dir():
        raise RunError(
            f"there is no {Path(place).parent} on {node()}, where clients keep things from "
            "round to round: let --runs name a folder that all machines share"
        )


def properties(settings: AnySettings, partition: Partition, plan: Plan | None) -> dict[str, Any]:
    """Return what the roll call asks of a client's data; in a private run, what its plan shows."""
    source = partition.source
    if plan is not None:
        return {
            "num-train": plan.size,
            "num-test": 0,
            "shape": list(source.shape),
            "num-classes": classes(settings.data, source),
        }
    num_train = len(partition.train)
    if lies(settings, partition.number):
        num_train = claimed_size(settings.attack, num_train)
    return {
        "num-train": num_train,
        "num-test": len(partition.test),
        "shape": list(source.shape),
        "num-classes": source.num_classes,
    }


def column_sums(settings: AnySettings, partition: Partition, likelihood: Likelihood) -> ColumnSums:
    """Return the sums of a client's features, and of the numbers that it is to predict."""
    rows = partition.train
    source = partition.source
    columns = np.asarray(source.x_train[rows], np.float64).reshape(len(rows), -1)
    labels = source.y_train[rows]
    if likelihood.is_number:
        return ColumnSums.of(np.column_stack([columns, labels]))
    return ColumnSums.of(columns, labels, classes(settings.data, source))
