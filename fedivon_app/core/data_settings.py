"""What is learned from, and how it is divided among the clients."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from fedivon_app.core.section import Section
from fedivon_app.core.standardise import Standard

# Options of single sources that used to be common settings, with the defaults that they had there.
FORMER_DATA_SETTINGS = {"a": 1.0, "b": 1.0, "image_size": None}


class DataSettings(Section):
    """What is learned from, and how it is divided among the clients."""

    source: str = Field(
        "digits",
        description="data set by name, see datasets/sources.py; `nodes`: each node's own file; "
        "package.module:function: a reader of your own",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="further options of the source's reader: see its signature",
    )
    path: str | None = Field(
        None, description="the file or folder of the sources npz, table and image-folder"
    )
    label_column: str | None = Field(
        None, description="table: the column that is predicted, a class or a number"
    )
    client_column: str | None = Field(
        None,
        description="table: the column that names each row's client; the partition is then natural",
    )
    split_column: str | None = Field(
        None, description="table: the column that says train or test; none: data.test_share"
    )
    feature_columns: tuple[str, ...] | None = Field(
        None, description="table: the columns to learn from; none: all the others"
    )
    drop_columns: tuple[str, ...] = Field(
        (), description="table: columns that are left out, such as a patient's number"
    )
    categories: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="table: by column the texts that count; none: those in the file",
    )
    classes: tuple[str, ...] | None = Field(
        None, description="table: the names of the classes in order; none: those in the file"
    )
    test_share: float = Field(
        0.2, gt=0, le=0.9, description="table: the share of each client's rows for tests"
    )
    standardise: bool | None = Field(
        None,
        description="inputs in units of their deviation from the mean over all clients; none: "
        "tables yes, arrays no",
    )
    standard: Standard | None = Field(
        None,
        description="these means and deviations, where they are known: of every feature or, of "
        "pictures, of every channel, with pixels from 0 to 1; none: the clients of a table are "
        "asked for sums before round 1",
    )
    root: str | None = Field(
        None, description="where data sets lie; default $FEDIVON_DATA or ~/.cache/fedivon-data"
    )
    scaling: Literal["raw", "unit", "signed", "tokens"] = Field(
        "unit",
        description="pixels as 0..255, 0..1 or -1..1; tokens: whole numbers that stay so, for an "
        "embedding",
    )
    labels: Literal["fine", "superclass"] = Field(
        "fine", description="cifar100: its 100 classes or its 20 superclasses"
    )
    shape: tuple[int, ...] | None = Field(
        None, description="source `nodes`: shape of one input, H W C or D"
    )
    num_classes: int | None = Field(
        None, ge=2, description="number of classes, where the source does not tell"
    )
    clients: int | None = Field(
        None, ge=1, description="number of clients; none: as many as the federation has nodes"
    )
    partition: str = Field(
        "iid", description="how examples are dealt to clients, see datasets/partition.py"
    )
    fraction: float = Field(
        1.0, gt=0, le=1, description="iid, heterogeneous: share of the data that is used"
    )
    shards_per_client: int = Field(2, ge=1, description="shards: how many a client gets")
    shard_sizes: tuple[int, int] | None = Field(
        None, description="shards: smallest and largest shard; none: equal cuts"
    )
    alpha: float = Field(0.5, gt=0, description="dirichlet: concentration; small is heterogeneous")
    min_examples: int = Field(1, ge=1, description="dirichlet: fewest examples a client may get")
    equal_sizes: bool = Field(
        False, description="dirichlet: clients of one size, each with a draw of labels of its own"
    )
    labels_per_client: int = Field(5, ge=1, description="labels: how many a client holds")
    per_class: int = Field(300, ge=1, description="two-class: examples of each of the two classes")
    concentration: float = Field(
        0.5, gt=0, description="heterogeneous: concentration of a client's labels"
    )
    label_noise: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the clients' training labels that are flipped to another one",
    )
    max_examples: int | None = Field(
        None, ge=1, description="cap on the training examples of a client"
    )
    holdout: int = Field(
        0,
        ge=0,
        description="training examples that the server keeps to choose the best checkpoint by, "
        "and to try replies on where merge.robust is held-out; nodes: of the server's own file",
    )

    @field_validator("classes", "drop_columns", "feature_columns", "categories", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        """Take whole numbers for texts, as a table's classes and columns may be called so."""
        if isinstance(value, dict):
            return {str(key): cls._texts(inside) for key, inside in value.items()}
        if not isinstance(value, list | tuple):
            return value
        return [str(item) if type(item) is int else item for item in value]

    @model_validator(mode="before")
    @classmethod
    def _natural(cls, values: Any) -> Any:
        """Keep the division that the data come with, unless another is asked for."""
        if not isinstance(values, dict) or not values.get("client_column"):
            return values
        return {"partition": "natural"} | values

    @model_validator(mode="before")
    @classmethod
    def _former_names(cls, values: Any) -> Any:
        """Take options of single sources under the names that they had as common settings."""
        if not isinstance(values, dict):
            return values
        kept = {key: value for key, value in values.items() if key not in FORMER_DATA_SETTINGS}
        given = {
            key: values[key]
            for key, default in FORMER_DATA_SETTINGS.items()
            if key in values and values[key] != default
        }
        options = kept.get("options") or {}
        if not given or not isinstance(options, dict):
            return kept
        return kept | {"options": given | options}
