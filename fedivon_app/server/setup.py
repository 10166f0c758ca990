"""What the server starts a run with: the network of the seed, and what it can score a model on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedivon_app.core.data_settings import DataSettings
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.frozen import frozen_digest
from fedivon_app.core.likelihood import likelihood_of
from fedivon_app.core.network import Architecture, new_network, pick_device
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.standardise import Standard
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import classes, division, own_source
from fedivon_app.datasets.table_format import TableFormat, agreed_format


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
    table: TableFormat | None = None
    standard: Standard | None = None
    class_weights: tuple[float, ...] | None = None
    missing: Mapping[str, int] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a run's folder keeps of this with its model."""
        facts: dict[str, Any] = {
            "shape": self.shape,
            "num_classes": self.num_classes,
            "class_names": self.class_names,
        }
        if self.table is not None:
            facts["table"] = self.table.model_dump()
        if self.standard is not None:
            facts["standard"] = self.standard.model_dump()
            facts["missing"] = dict(self.missing)
        if self.class_weights is not None:
            facts["class_weights"] = self.class_weights
        return facts

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ServerData:
        """Return the inverse of `facts`."""
        names = facts["class_names"]
        table = facts.get("table")
        standard = facts.get("standard")
        return cls(
            shape=tuple(facts["shape"]),
            num_classes=facts["num_classes"],
            class_names=tuple(names) if names else None,
            table=table and TableFormat.model_validate(table),
            standard=standard and Standard.model_validate(standard),
            class_weights=tuple(facts["class_weights"]) if "class_weights" in facts else None,
            missing=facts.get("missing", {}),
        )

    @property
    def features(self) -> list[str]:
        """Return the names of the features of a table; those of arrays are numbers."""
        return self.table.features if self.table else [str(n) for n in range(self.shape[0])]

    @property
    def is_number(self) -> np.ndarray:
        """Tell of each feature of a table whether it is a number, which is standardised."""
        return self.table.is_number if self.table else np.ones(self.shape[0], bool)


@dataclass(frozen=True, eq=False)
class Preparation:
    """The network, with its first weights, and what the server has of data."""

    flat: Flat
    data: ServerData

    @property
    def architecture(self) -> Architecture:
        """Return what a strategy must know of the network."""
        return Architecture(
            shape=self.data.shape,
            num_classes=self.data.num_classes,
            slices=self.flat.slices,
            frozen=frozen_digest(self.flat.module),
        )


def prepare(settings: AnySettings) -> Preparation:
    """Return what a run of these settings starts with."""
    data = server_data(settings)
    torch.manual_seed(settings.seed)
    device = pick_device("auto")
    try:
        outputs = likelihood_of(settings).num_outputs(data.num_classes)
        flat = new_network(settings.model, data.shape, outputs, device)
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
        if data.label_column is not None:
            return _of_tables(settings)
        if data.shape is None or data.num_classes is None:
            raise SettingsError(
                "data.source is `nodes`: say data.shape and data.num_classes, "
                "for the server sees no data"
            )
        if not data.path:
            return ServerData(data.shape, data.num_classes)
        own = own_source(settings, data.path)
        return ServerData(
            shape=data.shape,
            num_classes=data.num_classes,
            class_names=own.class_names,
            parts=_own_parts(settings, own),
        )
    divided = division(data, num_clients_of(settings), settings.seed, settings.task)
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
        table=source.table,
    )


def _of_tables(settings: AnySettings) -> ServerData:
    """What the server knows where every site has a table: the format, and a table of its own."""
    data = settings.data
    form = agreed_format(
        str(data.label_column),
        features=data.feature_columns,
        categories=data.categories,
        classes=data.classes,
        regression=settings.task == "regression",
    )
    parts: dict[str, Examples] = {}
    if data.path:
        parts = _own_parts(settings, own_source(settings, data.path))
    return ServerData(
        shape=(len(form.features),),
        num_classes=len(form.classes),
        class_names=form.classes or None,
        parts=parts,
        table=form,
    )


def _own_parts(settings: AnySettings, own: Source) -> dict[str, Examples]:
    """What is in the server's own file: test examples and, where it is to keep some, others."""
    parts = {}
    if count := settings.data.holdout:
        if len(own.x_train) < count:
            raise SettingsError(
                f"data.holdout is {count}, but the server's file {settings.data.path} has only "
                f"{len(own.x_train)} training examples"
            )
        order = np.random.default_rng(settings.seed).permutation(len(own.x_train))
        rows = np.sort(order[:count])
        parts["holdout"] = Examples(own.x_train[rows], own.y_train[rows])
    return parts | {"test": Examples(own.x_test, own.y_test)}


def with_facts(settings: AnySettings, known: ServerData) -> AnySettings:
    """Return the settings with what they leave open and the server knows.

    That is the number of classes, for a node's own file may lack some, what the columns of a table
    mean, and what inputs are standardised by.
    """
    data = settings.data.model_copy(update={"num_classes": known.num_classes or None})
    if known.standard is not None:
        data = data.model_copy(update={"standard": known.standard})
    if (form := known.table) is not None and data.source == "nodes":
        data = agreed(data, form)
    settings = settings.model_copy(update={"data": data})
    if known.class_weights is None:
        return settings
    client = settings.client.model_copy(update={"class_weights": known.class_weights})
    return settings.model_copy(update={"client": client})


def agreed(data: DataSettings, form: TableFormat) -> DataSettings:
    """Return the settings of data with all that a format says, for tables of others."""
    categories = {c.name: c.categories for c in form.columns if c.categories is not None}
    named = {
        "label_column": form.label,
        "feature_columns": tuple(column.name for column in form.columns),
        "categories": categories,
        "classes": form.classes or None,
    }
    return data.model_copy(update=named)


def num_clients_of(settings: AnySettings) -> int:
    """Return among how many clients a common data set is divided."""
    if settings.data.clients is None:
        raise SettingsError("data.clients is not known: say among how many the data are divided")
    return settings.data.clients
