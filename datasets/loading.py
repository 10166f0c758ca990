"""Loading: the common source of the settings, divided among the clients, once a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.settings import DataSettings
from fedivon_app.core.transfer import sent
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.noise import noisy
from fedivon_app.datasets.own_reader import OFFERED
from fedivon_app.datasets.partition import Split, split
from fedivon_app.datasets.partition import options_of as rule_options
from fedivon_app.datasets.scaling import inputs
from fedivon_app.datasets.sources import load
from fedivon_app.datasets.sources import options_of as source_options


@dataclass(frozen=True, eq=False)
class Division:
    """A source, and how it is divided among the clients."""

    source: Source
    split: Split


def tensors(
    x: np.ndarray, y: np.ndarray, scaling: str, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return rows of a source, inputs and labels, as a network takes them."""
    labels = torch.from_numpy(np.array(y, np.int64))
    return sent(inputs(x, scaling), device), sent(labels, device)


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
