"""Loading: the common source of the settings, divided among the clients, once a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedivon_app.core.data_settings import DataSettings
from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.standardise import Standard
from fedivon_app.core.transfer import sent
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.noise import noisy
from fedivon_app.datasets.own_reader import OFFERED
from fedivon_app.datasets.partition import Split, split
from fedivon_app.datasets.partition import options_of as rule_options
from fedivon_app.datasets.scaling import inputs
from fedivon_app.datasets.sources import load
from fedivon_app.datasets.sources import options_of as source_options
from fedivon_app.datasets.table_file import is_table

TABLE_SETTINGS = (  # what only a table has
    "label_column",
    "client_column",
    "split_column",
    "feature_columns",
    "drop_columns",
    "categories",
    "classes",
    "test_share",
)


@dataclass(frozen=True, eq=False)
class Division:
    """A source, and how it is divided among the clients."""

    source: Source
    split: Split


def tensors(
    x: np.ndarray,
    y: np.ndarray,
    scaling: str,
    device: torch.device,
    standard: Standard | None = None,
) -> tuple[Tensor, Tensor]:
    """Return rows of a source, inputs and labels, as a network takes them."""
    kind = np.float32 if y.dtype.kind == "f" else np.int64
    labels = torch.from_numpy(np.array(y, kind))
    return sent(inputs(x, scaling, standard), device), sent(labels, device)


def classes(data: DataSettings, source: Source) -> int:
    """Return the number of classes: what the settings say or, if they do not, the source."""
    return data.num_classes or source.num_classes


def division(
    data: DataSettings, num_clients: int | None, seed: int, task: str = "classification"
) -> Division:
    """Return the common source of the settings, divided by their rule.

    It is worked out once a process.
    """
    if num_clients is None:
        raise SettingsError("data.clients is not set: how many clients share the data?")
    return _division(data.model_dump_json(exclude={"standard"}), num_clients, seed, task)


@lru_cache(maxsize=4)
def _division(data_json: str, num_clients: int, seed: int, task: str) -> Division:
    data = DataSettings.model_validate_json(data_json)
    source = _source(data, num_clients, seed, task)
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


def _source(data: DataSettings, num_clients: int | None, seed: int, task: str) -> Source:
    return load(
        data.source,
        data.root,
        path=data.path,
        num_clients=num_clients,
        seed=seed,
        task=task,
        **_options(data),
    )


def own_source(settings: AnySettings, path: str | Path) -> Source:
    """Return what is in a file of somebody's own: arrays, or a table, by its name.

    What the columns of a table mean is in the settings, for it has to be the same for all.
    """
    data = settings.data
    if not is_table(path):
        return load("npz", data.root, path=path, num_classes=data.num_classes, task=settings.task)
    if not data.label_column:
        raise DataError(f"{path}: data.label_column must say which column is predicted.")
    options = table_options(data) | {"client_column": None, "agreed": True}
    return load("table", data.root, path=path, task=settings.task, **options)


def natural_clients(settings: AnySettings) -> int | None:
    """Return among how many clients the data come divided; None where they do not, or nobody asks.

    So that many clients a run has that is told no number.
    """
    data = settings.data
    own = data.source in ("table", "npz") and data.partition == "natural"
    if not own or data.clients is not None:
        return None
    owners = _source(data, None, settings.seed, settings.task).owner_train
    return None if owners is None else int(owners.max()) + 1


def is_standardised(data: DataSettings) -> bool:
    """Tell whether inputs are standardised over all clients."""
    if data.standardise is not None:
        return data.standardise
    return data.source == "table" or (data.source == "nodes" and data.label_column is not None)


def table_options(data: DataSettings) -> dict[str, Any]:
    """Return what the settings say of a table."""
    values = {name: getattr(data, name) for name in TABLE_SETTINGS}
    return values | {"categories": tuple(sorted(data.categories.items()))}


def _options(data: DataSettings) -> dict[str, Any]:
    """The options of the source: common settings that its reader takes, and `data.options`."""
    if doubled := sorted(set(OFFERED) & set(data.options)):
        raise SettingsError(
            f"data.options.{doubled[0]} is no option of a source: data.root, data.path, "
            "data.clients and seed are settings of their own"
        )
    if data.source == "table":
        return table_options(data) | data.options
    taken = source_options(data.source)
    defaults = DataSettings()
    for name in TABLE_SETTINGS:
        if getattr(data, name) != getattr(defaults, name):
            raise SettingsError(
                f"data.{name} is for tables, and data.source is {data.source}: "
                "set data.source=table"
            )
    common = {"labels": data.labels, "num_classes": data.num_classes}
    used = {key: value for key, value in common.items() if key in taken and value is not None}
    return used | data.options
