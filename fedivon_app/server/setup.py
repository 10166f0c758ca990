"""What the server starts a run with: the network of the seed, and what it can score a model on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.network import Architecture, new_network, pick_device
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import classes, division
from fedivon_app.datasets.sources import load


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and labels in the format of a data source."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True, eq=False)
class ServerData:
    """What the server knows of the data.

    `parts` has what it can score on by name: `test`, `holdout`, or neither.
    """

    shape: tuple[int, ...]
    num_classes: int
    class_names: tuple[str, ...] | None = None
    parts: Mapping[str, Examples] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Preparation:
    """The network, with its first weights, and what the server has of data."""

    flat: Flat
    data: ServerData

    @property
    def architecture(self) -> Architecture:
        """Return what a strategy must know of the network."""
        return Architecture(self.data.shape, self.data.num_classes, self.flat.slices)


def prepare(settings: AnySettings) -> Preparation:
    """Return what a run of these settings starts with."""
    data = server_data(settings)
    torch.manual_seed(settings.seed)
    device = pick_device("auto")
    try:
        flat = new_network(settings.model, data.shape, data.num_classes, device)
    except SettingsError as error:
        raise SettingsError(f"model: {error}") from None
    return Preparation(flat, data)


def server_data(settings: AnySettings) -> ServerData:
    """Return what the server knows of the data.

    It has the common data set, or, if each node has its own, what the settings say and the server's
    own file.
    """
    data = settings.data
    if data.source == "nodes":
        if data.shape is None or data.num_classes is None:
            raise SettingsError(
                "data.source is `nodes`: say data.shape and data.num_classes, "
                "for the server sees no data"
            )
        if not data.path:
            return ServerData(data.shape, data.num_classes)
        own = load("npz", data.root, path=data.path, num_classes=data.num_classes)
        return ServerData(
            shape=data.shape,
            num_classes=data.num_classes,
            class_names=own.class_names,
            parts={"test": Examples(own.x_test, own.y_test)},
        )
    divided = division(data, num_clients_of(settings), settings.seed)
    source = divided.source
    parts = {}
    if len(rows := divided.split.holdout):
        parts["holdout"] = Examples(source.x_train[rows], source.y_train[rows])
    parts["test"] = Examples(source.x_test, source.y_test)
    return ServerData(
        shape=tuple(source.shape),
        num_classes=classes(data, source),
        class_names=source.class_names,
        parts=parts,
    )


def num_clients_of(settings: AnySettings) -> int:
    """Return among how many clients a common data set is divided."""
    if settings.data.clients is None:
        raise SettingsError("data.clients is not known: say among how many the data are divided")
    return settings.data.clients
