"""What a client, and the server's evaluation, work on: a node's data as tensors, and the network, once a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datasets.noise import noisy
from datasets.partition import Split, split
from datasets.partition import options_of as rule_options
from datasets.sources import DataError, Source, inputs, load
from datasets.sources import options_of as source_options
from fedivon_app.core.flat import Flat
from fedivon_app.core.models import build, build_custom, with_dropout
from fedivon_app.core.settings import DataSettings, ModelSettings, Settings


@dataclass(frozen=True)
class Partition:
    """One client's data: rows of a source."""

    number: int
    source: Source
    train: np.ndarray
    test: np.ndarray


def tensors(x: np.ndarray, y: np.ndarray, scaling: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of a source as what a network takes."""
    labels = torch.from_numpy(np.array(y, np.int64)).to(device)
    return inputs(x, scaling).to(device), labels


def pick_device(name: str) -> torch.device:
    """The torch device of this name; `auto` is CUDA where there is one, else the CPU."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"client.device is {name!r}, which torch does not know; try auto, cpu, cuda or cuda:0"
        ) from None
    if device.type == "cuda" and not available:
        raise ValueError(f"client.device is {name!r}, but torch finds no CUDA here; auto uses it where there is one")
    return device


def classes(data: DataSettings, source: Source) -> int:
    return data.num_classes or source.num_classes


def new_network(model: ModelSettings, shape: tuple[int, ...], num_classes: int, device: torch.device) -> Flat:
    """The network of the settings, with weights from torch's generator."""
    make = build_custom if model.factory else build
    module = make(model.factory or model.name, shape, num_classes, **model.options)
    if model.dropout is not None:
        module = with_dropout(module, model.dropout, model.dropout_logits)
    return Flat(module.to(device))


@lru_cache(maxsize=4)
def _network(model_json: str, shape: tuple[int, ...], num_classes: int, device: torch.device) -> Flat:
    return new_network(ModelSettings.model_validate_json(model_json), shape, num_classes, device)


def network(model: ModelSettings, shape: tuple[int, ...], num_classes: int, device: torch.device) -> Flat:
    """The same, built once a process; its weights are whatever was loaded last."""
    return _network(model.model_dump_json(), shape, num_classes, device)


@lru_cache(maxsize=4)
def _division(data_json: str, num_clients: int, seed: int) -> tuple[Source, Split]:
    data = DataSettings.model_validate_json(data_json)
    values = data.model_dump()
    taken = {name: values[name] for name in source_options(data.source) if values.get(name) is not None}
    source = load(data.source, data.root, path=data.path, num_clients=num_clients, seed=seed, **taken)
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
        raise DataError("data.source is `nodes`, so each node names its own file: --node-config 'data-path=\"my.npz\"'")
    num_clients = settings.data.clients or int(node["num-partitions"])
    if number >= num_clients:
        raise DataError(f"the node's partition-id is {number}, but data.clients is {num_clients}: ids count from 0")
    source, parts = division(settings.data, num_clients, settings.seed)
    return Partition(number, source, parts.train[number], parts.test[number])
