"""What a client, and the server's evaluation, work on: a node's data, as tensors, loaded once a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedivon_app.core.settings import DataSettings, Settings
from fedivon_app.datasets.noise import noisy
from fedivon_app.datasets.partition import Split, split
from fedivon_app.datasets.partition import options_of as rule_options
from fedivon_app.datasets.sources import DataError, Source, inputs, load
from fedivon_app.datasets.sources import options_of as source_options


@dataclass(frozen=True)
class Partition:
    """One client's data: rows of a source."""

    number: int
    source: Source
    train: np.ndarray
    test: np.ndarray


def tensors(
    x: np.ndarray, y: np.ndarray, scaling: str, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Rows of a source as what a network takes."""
    labels = torch.from_numpy(np.array(y, np.int64)).to(device)
    return inputs(x, scaling).to(device), labels


def classes(data: DataSettings, source: Source) -> int:
    return data.num_classes or source.num_classes


@lru_cache(maxsize=4)
def _division(data_json: str, num_clients: int, seed: int) -> tuple[Source, Split]:
    data = DataSettings.model_validate_json(data_json)
    values = data.model_dump()
    taken = {
        name: values[name] for name in source_options(data.source) if values.get(name) is not None
    }
    source = load(
        data.source, data.root, path=data.path, num_clients=num_clients, seed=seed, **taken
    )
    options = {name: values[name] for name in rule_options(data.partition) if name in values}
    caps = {"holdout": data.holdout, "max_examples": data.max_examples}
    parts = split(source, data.partition, num_clients, seed, **caps, **options)
    return noisy(source, data.label_noise, parts.train, seed) if data.label_noise else source, parts


def division(data: DataSettings, num_clients: int, seed: int) -> tuple[Source, Split]:
    """The common source of the settings and how its rule divides it, worked out once a process."""
    return _division(data.model_dump_json(), num_clients, seed)


def partition_of(settings: Settings, node: dict[str, Any]) -> Partition:
    """The data of a node: the file that its node config names, or its partition of the common source."""
    number = int(node.get("partition-id", 0))
    if path := node.get("data-path"):
        own = load("npz", settings.data.root, path=path, num_classes=settings.data.num_classes)
        return Partition(number, own, np.arange(len(own.y_train)), np.arange(len(own.y_test)))
    if settings.data.source == "nodes":
        raise DataError(
            "data.source is `nodes`, so each node names its own file: --node-config 'data-path=\"my.npz\"'"
        )
    num_clients = settings.data.clients or int(node["num-partitions"])
    if number >= num_clients:
        raise DataError(
            f"the node's partition-id is {number}, but data.clients is {num_clients}: ids count from 0"
        )
    source, parts = division(settings.data, num_clients, settings.seed)
    return Partition(number, source, parts.train[number], parts.test[number])
