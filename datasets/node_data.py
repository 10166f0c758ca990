"""A node's data: its own file, or its partition of the common source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import division, own_source


@dataclass(frozen=True)
class Partition:
    """One client's data: rows of a source."""

    number: int
    source: Source
    train: np.ndarray
    test: np.ndarray

    @property
    def name(self) -> str:
        """Return what the source calls the client, or nothing."""
        names = self.source.client_names
        return names[self.number] if names and self.number < len(names) else ""


def partition_of(settings: AnySettings, node: Mapping[str, Any]) -> Partition:
    """Return the data of a node.

    They are those of the file that its node config names, or its partition of the common source.
    """
    number = int(node.get("partition-id", 0))
    if path := node.get("data-path"):
        own = own_source(settings, str(path))
        return Partition(number, own, np.arange(len(own.y_train)), np.arange(len(own.y_test)))
    if settings.data.source == "nodes":
        raise DataError(
            "data.source is `nodes`, so each node names its own file: "
            "--node-config 'data-path=\"my.npz\"' (or a table, my.csv)"
        )
    num_clients = settings.data.clients or int(node["num-partitions"])
    if number >= num_clients:
        raise DataError(
            f"the node's partition-id is {number}, but data.clients is {num_clients}: "
            "ids count from 0"
        )
    divided = division(settings.data, num_clients, settings.seed, settings.task)
    return Partition(
        number, divided.source, divided.split.train[number], divided.split.test[number]
    )
