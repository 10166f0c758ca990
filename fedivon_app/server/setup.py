"""What the server starts a run with: the network with the weights of the seed, and what it can score a model on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from fedivon_app.core.flat import Flat
from fedivon_app.core.network import new_network, pick_device
from fedivon_app.core.settings import Settings, SettingsError
from fedivon_app.datasets.loading import classes, division
from fedivon_app.datasets.sources import load

Parts = dict[str, tuple[np.ndarray, np.ndarray]]


class ServerData(NamedTuple):
    """What the server knows of the data; `parts` has what it can score on: `test`, `holdout`, or neither."""

    shape: tuple[int, ...]
    num_classes: int
    class_names: tuple[str, ...] | None
    parts: Parts


def prepare(settings: Settings) -> tuple[Flat, ServerData]:
    """The network, with its first weights, and what the server has of data."""
    data = server_data(settings)
    torch.manual_seed(settings.seed)
    try:
        flat = new_network(settings.model, data.shape, data.num_classes, pick_device("auto"))
    except ValueError as error:
        raise SettingsError(f"model: {error}") from None
    return flat, data


def server_data(settings: Settings) -> ServerData:
    """The common data set, or, if each node has its own, what the settings say and the server's own file."""
    data = settings.data
    parts = {}
    if data.source == "nodes":
        if data.shape is None or data.num_classes is None:
            raise SettingsError(
                "data.source is `nodes`: say data.shape and data.num_classes, for the server sees no data"
            )
        shape = data.shape
        num_classes = data.num_classes
        source = (
            load("npz", data.root, path=data.path, num_classes=num_classes) if data.path else None
        )
    else:
        source, split = division(data, data.clients, settings.seed)
        shape = source.shape
        num_classes = classes(data, source)
        if len(split.holdout):
            parts["holdout"] = source.x_train[split.holdout], source.y_train[split.holdout]
    if source is not None:
        parts["test"] = source.x_test, source.y_test
    return ServerData(tuple(shape), num_classes, source and source.class_names, parts)
