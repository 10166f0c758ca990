"""What a client, and the server's evaluation, work on: a node's data, loaded once a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.core.settings import AnySettings, DataSettings
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.noise import noisy
from fedivon_app.datasets.own_source import OFFERED
from fedivon_app.datasets.partition import Split, split
from fedivon_app.datasets.partition import options_of as rule_options
from fedivon_app.datasets.sources import inputs, load
from fedivon_app.datasets.sources import options_of as source_options


@dataclass(frozen=True, eq=False)
class Division:
    """A source, and how it is divided among the clients."""

    source: Source
    split: Split


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
    """Return rows of a source, inputs and labels, as a network takes them."""
    labels = torch.from_numpy(np.array(y, np.int64)).to(device)
    return inputs(x, scaling).to(device), labels


def classes(data: DataSettings, source: Source) -> int:
    """Return the number of classes: what the settings say or, if they do not, the source."""
    return data.num_classes or source.num_classes


def division(data: DataSettings, num_clients: int | None, seed: int) -> Division:
    """Return the common source of the settings, divided by their rule.

    It is worked out once a process.
    """
    if num_clients is None:
        raise SettingsError("data.clients is not set: how many clients share the data?")
    return _division(data.model_dump_json(), num_clients, seed)


def partition_of(settings: AnySettings, node: Mapping[str, Any]) -> Partition:
    """Return the data of a node.

    They are those of the file that its node config names, or its partition of the common source.
    """
    number = int(node.get("partition-id", 0))
    if path := node.get("data-path"):
        own = load("npz", settings.data.root, path=path, num_classes=settings.data.num_classes)
        return Partition(number, own, np.arange(len(own.y_train)), np.arange(len(own.y_test)))
    if settings.data.source == "nodes":
        raise DataError(
            "data.source is `nodes`, so each node names its own file: "
            "--node-config 'data-path=\"my.npz\"'"
        )
    num_clients = settings.data.clients or int(node["num-partitions"])
    if number >= num_clients:
        raise DataError(
            f"the node's partition-id is {number}, but data.clients is {num_clients}: "
            "ids count from 0"
        )
    divided = division(settings.data, num_clients, settings.seed)
    return Partition(
        number, divided.source, divided.split.train[number], divided.split.test[number]
    )


@lru_cache(maxsize=4)
def _division(data_json: str, num_clients: int, seed: int) -> Division:
    data = DataSettings.model_validate_json(data_json)
    source = load(
        data.source, data.root, path=data.path, num_clients=num_clients, seed=seed, **_options(data)
    )
    values = data.model_dump()
    options = {name: values[name] for name in rule_options(data.partition) if name in values}
    parts = split(
        source,
        data.partition,
        num_clients,
        seed,
        holdout=data.holdout,
        max_examples=data.max_examples,
        **options,
    )
    if data.label_noise:
        source = noisy(source, data.label_noise, parts.train, seed)
    return Division(source, parts)


def _options(data: DataSettings) -> dict[str, Any]:
    """The options of the source: common settings that its reader takes, and `data.options`."""
    if doubled := sorted(set(OFFERED) & set(data.options)):
        raise SettingsError(
            f"data.options.{doubled[0]} is no option of a source: data.root, data.path, "
            "data.clients and seed are settings of their own"
        )
    taken = source_options(data.source)
    common = {"labels": data.labels, "num_classes": data.num_classes}
    used = {key: value for key, value in common.items() if key in taken and value is not None}
    return used | data.options
