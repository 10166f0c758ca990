"""Typed settings, composed of YAML files and overrides, with errors that name the file, the key and the nearest name.

Order, later wins: the defaults below < conf/strategy/<strategy>.yaml and conf/data/<dataset>.yaml < the experiment (the
file it `extends` first, then what it says for every method, then its `methods: <strategy>:` part) < overrides.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from math import cos, pi
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

import fedivon_app

CONF = next(place for folder in fedivon_app.__path__ if (place := Path(folder) / "conf").is_dir())
LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # libyaml's where it was built in: several times faster


class SettingsError(ValueError):
    """A setting that is wrong; its text is for the person who wrote it."""


class Section(BaseModel):
    """A group of settings: no unknown names, no changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataSettings(Section):
    """What is learned from, and how it is divided among the clients."""

    source: str = Field(
        "digits",
        description="data set by name, see datasets/sources.py; `nodes`: each node's own file",
    )
    path: str | None = Field(
        None, description="the file or folder of the sources npz and image-folder"
    )
    root: str | None = Field(
        None, description="where data sets lie; default $FEDIVON_DATA or ~/.cache/fedivon-data"
    )
    scaling: Literal["raw", "unit", "signed"] = Field(
        "unit", description="pixels as 0..255, 0..1 or -1..1"
    )
    labels: Literal["fine", "superclass"] = Field(
        "fine", description="cifar100: its 100 classes or its 20 superclasses"
    )
    image_size: int | None = Field(
        None, ge=1, description="image-folder: resize to this height and width"
    )
    a: float = Field(1.0, ge=0, description="synthetic: how much the clients' models differ")
    b: float = Field(1.0, ge=0, description="synthetic: how much the clients' inputs differ")
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
    shards_per_client: int = Field(2, ge=1)
    shard_sizes: tuple[int, int] | None = Field(
        None, description="shards: smallest and largest shard; none: equal cuts"
    )
    alpha: float = Field(0.5, gt=0, description="dirichlet: concentration; small is heterogeneous")
    min_examples: int = Field(1, ge=1, description="dirichlet: fewest examples a client may get")
    labels_per_client: int = Field(5, ge=1)
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
        description="training examples that the server keeps to choose the best checkpoint by",
    )


class ModelSettings(Section):
    """The network: by name from the zoo, or the user's own by import path."""

    name: str = "mlp"
    factory: str | None = Field(
        None, description="the user's own builder, as package.module:function"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="what the builder takes besides shape and classes"
    )
    dropout: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Monte Carlo dropout after every linear and convolution layer: its rate",
    )
    dropout_logits: bool = Field(
        False, description="after the last layer, whose outputs are the logits, too"
    )


class ClientSettings(Section):
    """What every client's local training has."""

    epochs: int = Field(1, ge=1)
    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(0.1, gt=0)
    final_learning_rate: float | None = Field(
        None, gt=0, description="at the last round; none: the same as at the first"
    )
    schedule: Literal["constant", "linear", "cosine", "exponential"] = "constant"
    schedule_over: Literal["rounds"] = Field("rounds", description="what the schedule runs over")
    decay: float = Field(
        0.04, ge=0, description="exponential: the rate falls by exp(-decay) a round"
    )
    decay_after: int = Field(50, ge=0, description="exponential: rounds before it begins to fall")
    device: str = Field(
        "auto", description="torch device; auto: CUDA where there is one, else the CPU"
    )

    @model_validator(mode="after")
    def _schedule_has_an_end(self) -> ClientSettings:
        if (self.schedule in ("linear", "cosine")) != (self.final_learning_rate is not None):
            raise ValueError(
                "final_learning_rate goes with schedule linear or cosine; constant and exponential go without it"
            )
        return self

    @property
    def initial_precision(self) -> float | None:
        """Of every weight before round 1; None for clients that learn a point."""
        return None

    def rate_at(self, progress: float) -> float:
        """The rate of the schedules that have an end: learning_rate at progress 0, final_learning_rate at 1."""
        if self.final_learning_rate is None:
            return self.learning_rate
        share = 1 - progress if self.schedule == "linear" else 0.5 * (1 + cos(pi * progress))
        return self.final_learning_rate + (self.learning_rate - self.final_learning_rate) * share


class PosteriorClientSettings(ClientSettings):
    """What clients that learn a precision have in common."""

    start: Literal["posterior", "mean"] | None = Field(
        None,
        description="where a round starts: at the server's posterior, or its mean alone; none: by merge.rule",
    )


class ServerSettings(Section):
    """How rounds are run, whatever the method."""

    min_replies: int = Field(
        1, ge=1, description="fewer good replies than this leave the global posterior as it was"
    )
    round_timeout: float = Field(
        3600, gt=0, description="seconds to wait for the replies of a round"
    )
    quorum: int | None = Field(
        None,
        ge=1,
        description="with this many replies a round waits no longer than `grace` for the rest; none: for all",
    )
    grace: float = Field(10, ge=0, description="seconds that a round goes on after its quorum")
    node_timeout: float = Field(
        120, gt=0, description="seconds to wait for the nodes before the first round"
    )
    precision_bound: float | None = Field(
        10,
        ge=1,
        description="a client's precision at most, block by block: times the round's median; none: any",
    )
    change_bound: float | None = Field(
        5,
        ge=1,
        description="how far a client may move the mean: times the round's median; none: any",
    )
    max_growth: float = Field(
        1e6, gt=1, description="the run stops when a mean or precision grows by more than this"
    )


class PretrainingSettings(Section):
    """Training by the server before round 1."""

    fraction: float = Field(
        0.0, ge=0, lt=1, description="share of the training examples; 0: no pretraining"
    )
    epochs: int = Field(100, ge=1, description="at most as many")
    patience: int = Field(
        10, ge=1, description="epochs without a better validation accuracy that end it"
    )
    validation: float = Field(0.1, gt=0, lt=1, description="share of the fraction that validates")


class EvaluationSettings(Section):
    """When, and with how many weight samples, the global model is scored."""

    every: int = Field(
        10,
        ge=0,
        description="rounds between server evaluations; the last round is always one; 0: only it",
    )
    at: tuple[int, ...] = Field((), description="rounds that are scored besides")
    samples: int = Field(32, ge=0, description="Monte Carlo samples; 0: at the mean only")
    final_samples: int = Field(64, ge=0, description="Monte Carlo samples after the last round")
    clients_every: int = Field(
        0,
        ge=0,
        description="rounds between evaluations on the clients' test parts, and after the last; 0: never",
    )
    personal: bool = Field(
        False,
        description="clients keep what they trained last as a PM, scored beside the GM; some methods always do",
    )
    ood: str | None = Field(
        None, description="out-of-distribution data: a source by name, see datasets/sources.py"
    )
    ood_path: str | None = Field(
        None, description="its file or folder, for the sources npz and image-folder"
    )
    ood_size: int = Field(
        5000, ge=1, description="test examples that are compared with as many of the ood data"
    )
    select_by: Literal["nll", "accuracy", "ece", "brier"] = Field(
        "nll", description="held-out score of the best checkpoint"
    )


class RunSettings(Section):
    """The run's folder."""

    folder: str | None = Field(
        None, description="where run folders are made; default ~/fedivon-runs"
    )
    checkpoint_every: int = Field(10, ge=1)
    client_state: Literal["node", "run"] = Field(
        "node",
        description="where clients keep what lasts: each on its own disk, or in the run's folder, as a simulation can",
    )
    stop_after: int | None = Field(
        None, ge=1, description="stop after this round, to be resumed later"
    )


class Settings(Section):
    """Everything a run depends on. A method adds its own `client` and `merge` sections."""

    experiment: str
    strategy: str
    dataset: str | None = None
    seed: int = Field(0, ge=0)
    rounds: int = Field(10, ge=1)
    clients_per_round: int | None = Field(
        None, ge=1, description="clients sampled a round; none: all"
    )
    train_all_clients: bool = Field(
        False,
        description="all clients train in every round, and only those sampled report to the server",
    )
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    server: ServerSettings = ServerSettings()
    pretraining: PretrainingSettings = PretrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    run: RunSettings = RunSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        if (
            self.data.clients
            and self.clients_per_round
            and self.clients_per_round > self.data.clients
        ):
            raise ValueError(
                f"clients_per_round is {self.clients_per_round}, but data.clients is {self.data.clients}: "
                "sample at most as many clients as there are"
            )
        if self.clients_per_round and self.server.min_replies > self.clients_per_round:
            raise ValueError(
                f"server.min_replies is {self.server.min_replies}, but clients_per_round is {self.clients_per_round}"
            )
        return self


def compose(
    settings_of: Callable[[str], type[Settings]],
    experiment: str,
    strategy: str | None = None,
    overrides: str | Iterable[str] = (),
    conf: Path = CONF,
) -> Settings:
    """The settings of a run. `settings_of` gives the settings class of a method, or raises ValueError for its name."""
    layers = _experiment(conf, experiment)
    override = _override(overrides)
    chosen = {"experiment": experiment} | ({"strategy": strategy} if strategy else {})
    layers += [("the command line", chosen), ("the command line", override)]
    name = _last(layers, "strategy", f"conf/experiment/{experiment}.yaml")
    dataset = _last(layers, "dataset")
    kind = _kind(settings_of, name, "")
    base = [(f"conf/strategy/{name}.yaml", _read(conf, "strategy", name))]
    if dataset is not None:
        base.append((f"conf/data/{dataset}.yaml", {"data": _read(conf, "data", dataset)}))
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, values in base + layers:
        values = dict(values)
        methods = values.pop("methods", None) or {}
        for method in methods:
            _kind(settings_of, method, f"{origin}: methods: ")
        _merge(merged, values, origins, origin)
        _merge(merged, methods.get(name) or {}, origins, origin)
    return validate(kind, merged, origins)


def validate(
    kind: type[Settings], values: Mapping[str, Any], origins: Mapping[str, str] | None = None
) -> Settings:
    """`values` as settings of the given kind; every complaint in one SettingsError, a line each."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise SettingsError(
            "\n".join(_explain(kind, e, origins or {}) for e in error.errors())
        ) from None


def nearest(name: str, valid: Iterable[str]) -> str:
    """A clause that helps the person who misspelt `name`: the nearest valid name, or all of them."""
    valid = sorted(valid)
    close = get_close_matches(name, valid, 1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(valid)}"


def _kind(settings_of: Callable[[str], type[Settings]], name: str, where: str) -> type[Settings]:
    try:
        return settings_of(name)
    except ValueError as error:
        raise SettingsError(f"{where}{error}") from None


def _experiment(conf: Path, name: str, seen: tuple[str, ...] = ()) -> list[tuple[str, dict]]:
    if name in seen:
        raise SettingsError(
            f"conf/experiment/{name}.yaml extends itself, by way of {' -> '.join((*seen, name))}"
        )
    values = _read(conf, "experiment", name)
    parent = values.pop("extends", None)
    return (_experiment(conf, parent, (*seen, name)) if parent else []) + [
        (f"conf/experiment/{name}.yaml", values)
    ]


def _read(conf: Path, folder: str, name: str) -> dict[str, Any]:
    path = conf / folder / f"{name}.yaml"
    if not path.is_file():
        known = [p.stem for p in (conf / folder).glob("*.yaml")]
        what = {"data": "data set"}.get(folder, folder)
        raise SettingsError(
            f"there is no {what} {name!r} (conf/{folder}/{name}.yaml): {nearest(name, known)}"
        )
    try:
        values = yaml.load(path.read_text(), LOADER) or {}
    except yaml.YAMLError as error:
        raise SettingsError(
            f"conf/{folder}/{name}.yaml is not valid YAML: {' '.join(str(error).split())}"
        ) from None
    if not isinstance(values, dict):
        raise SettingsError(
            f"conf/{folder}/{name}.yaml must hold names and values, not a {type(values).__name__}"
        )
    return values


def _override(overrides: str | Iterable[str]) -> dict[str, Any]:
    """`client.learning_rate=0.05 data.alpha=0.1` as nested values."""
    words = shlex.split(overrides) if isinstance(overrides, str) else list(overrides)
    nested: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise SettingsError(
                f"the override {word!r} is not of the form name=value, such as client.epochs=2"
            )
        *parents, leaf = key.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise SettingsError(
                    f"the override {word!r} names a part of {parent}, which another override set whole"
                )
        try:
            place[leaf] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SettingsError(f"the value of the override {word!r} is not valid YAML") from None
    return nested


def _last(layers: list[tuple[str, dict]], key: str, required_in: str | None = None) -> str | None:
    values = [values[key] for _, values in layers if values.get(key) is not None]
    if not values and required_in:
        raise SettingsError(f"{required_in} names no {key}, and none was given")
    if values and not isinstance(values[-1], str):
        raise SettingsError(f"{key} must be a name, not {values[-1]!r}")
    return values[-1] if values else None


def _merge(
    into: dict, values: Mapping, origins: dict[str, str], origin: str, prefix: str = ""
) -> None:
    if not isinstance(values, Mapping):
        raise SettingsError(
            f"{origin}: {prefix.rstrip('.') or 'it'} must hold names and values, not {values!r}"
        )
    if into.get("name", values.get("name")) != values.get("name", into.get("name")):
        into.pop("options", None)  # they were another model's
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and isinstance(into.get(key, {}), dict):
            _merge(into.setdefault(key, {}), value, origins, origin, f"{name}.")
        else:
            into[key] = value
        origins[name] = origin


def _explain(kind: type[BaseModel], error: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """One line for one of pydantic's errors: where it was said, what it was, what would be right."""
    path = [str(part) for part in error["loc"]]
    while path and not any(".".join(path) == key for key in origins) and error["type"] != "missing":
        path = path[:-1]  # drop the names of union members, which mean nothing to a reader
    key = ".".join(path)
    where = f"{origins[key]}: " if key in origins else ""
    if error["type"] == "extra_forbidden":
        return f"{where}there is no setting {key!r}: {nearest(path[-1], _fields(kind, path[:-1]))}"
    if error["type"] == "missing":
        return f"{where}the setting {key!r} is needed and was not given"
    message = error["msg"].removeprefix("Value error, ")
    return f"{where}{key} is {error['input']!r}: {message}" if key else f"{where}{message}"


def _fields(kind: type[BaseModel], path: Iterable[str]) -> list[str]:
    for name in path:
        annotation = kind.model_fields[name].annotation
        options = [annotation, *get_args(annotation)]
        kind = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return list(kind.model_fields)
