"""The settings of a run, composed of YAML files and overrides.

Order, later wins: the defaults of the typed settings < conf/strategy/<strategy>.yaml and
conf/data/<dataset>.yaml < the experiment (the file it `extends` first, then what it says for every
method, then its `methods: <strategy>:` part) < overrides. Errors name the file, the key and the
nearest valid name.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

import fedivon_app
from fedivon_app.core.data_settings import FORMER_DATA_SETTINGS
from fedivon_app.core.errors import SettingsError, UserError
from fedivon_app.core.registry import is_import_path
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import did_you_mean, one_line
from fedivon_app.core.yaml_reading import read_yaml

CONF = next(place for folder in fedivon_app.__path__ if (place := Path(folder) / "conf").is_dir())

SettingsOf = Callable[[str], type[AnySettings]]  # the settings class of a method, by its name


@dataclass(frozen=True)
class Layer:
    """Values that one file, or the command line, gives."""

    origin: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Composed:
    """The settings of a run, and which file, or the command line, gave each by its dotted name.

    What has no origin has the default of the code.
    """

    settings: AnySettings
    origins: Mapping[str, str]


def compose(
    settings_of: SettingsOf,
    experiment: str,
    strategy: str | None = None,
    overrides: str | Iterable[str] = (),
    conf: Path = CONF,
) -> AnySettings:
    """Return the settings of a run.

    `settings_of` gives the settings class of a method, or raises a UserError for its name.
    """
    return composed(settings_of, experiment, strategy, overrides, conf).settings


def composed(
    settings_of: SettingsOf,
    experiment: str,
    strategy: str | None = None,
    overrides: str | Iterable[str] = (),
    conf: Path = CONF,
) -> Composed:
    """Return the settings of a run, and where each of them is from; see `compose`."""
    layers = _experiment(conf, experiment)
    chosen = {"experiment": experiment} | ({"strategy": strategy} if strategy else {})
    layers.append(Layer("the command line", chosen))
    layers.append(Layer("the command line", _override(overrides)))
    name = _last(layers, "strategy")
    if name is None:
        raise SettingsError(
            f"conf/experiment/{experiment}.yaml names no strategy, and none was given"
        )
    dataset = _last(layers, "dataset")
    kind = _kind(settings_of, name)
    base = []
    if not is_import_path(name):  # a method of somebody else's has its defaults in its classes
        base.append(Layer(f"conf/strategy/{name}.yaml", _read(conf, "strategy", name)))
    if dataset is not None:
        base.append(Layer(f"conf/data/{dataset}.yaml", {"data": _read(conf, "data", dataset)}))
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in base + layers:
        values = dict(layer.values)
        methods = values.pop("methods", None) or {}
        for method in methods:
            _kind(settings_of, method, where=f"{layer.origin}: methods: ")
        for part in (values, methods.get(name) or {}):
            _merge(merged, part, origins=origins, origin=layer.origin)
    return Composed(validate(kind, merged, origins), origins)


def validate(
    kind: type[AnySettings], values: Mapping[str, Any], origins: Mapping[str, str] | None = None
) -> AnySettings:
    """Return the values as settings of the given kind.

    Every complaint goes into one SettingsError, a line each; `origins` says which file gave a key.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [_explain(kind, one, origins or {}) for one in error.errors()]
        raise SettingsError("\n".join(lines)) from None


def _kind(settings_of: SettingsOf, name: str, where: str = "") -> type[AnySettings]:
    try:
        return settings_of(name)
    except UserError as error:
        raise SettingsError(f"{where}{error}") from None


def _experiment(conf: Path, name: str, seen: tuple[str, ...] = ()) -> list[Layer]:
    """Return the layers of an experiment, what it extends first."""
    if name in seen:
        way = " -> ".join((*seen, name))
        raise SettingsError(f"conf/experiment/{name}.yaml extends itself, by way of {way}")
    values = _read(conf, "experiment", name)
    parent = values.pop("extends", None)
    below = _experiment(conf, parent, (*seen, name)) if parent else []
    return [*below, Layer(f"conf/experiment/{name}.yaml", values)]


def _read(conf: Path, folder: str, name: str) -> dict[str, Any]:
    path = conf / folder / f"{name}.yaml"
    if not path.is_file():
        known = [p.stem for p in (conf / folder).glob("*.yaml")]
        what = {"data": "data set"}.get(folder, folder)
        raise SettingsError(
            f"there is no {what} {name!r} (conf/{folder}/{name}.yaml): {did_you_mean(name, known)}"
        )
    try:
        values = read_yaml(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise SettingsError(
            f"conf/{folder}/{name}.yaml is not valid YAML: {one_line(error)}"
        ) from None
    if not isinstance(values, dict):
        raise SettingsError(
            f"conf/{folder}/{name}.yaml must hold names and values, not a {type(values).__name__}"
        )
    return values


def split_words(text: str) -> list[str]:
    """Return the overrides in a text, in which quotes keep spaces together as in a shell."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"set is {text!r}: {one_line(error).lower()}") from None


def _override(overrides: str | Iterable[str]) -> dict[str, Any]:
    """Return `client.learning_rate=0.05 data.alpha=0.1` as nested values."""
    words = split_words(overrides) if isinstance(overrides, str) else list(overrides)
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
                    f"the override {word!r} names a part of {parent}, "
                    "which another override set whole"
                )
        try:
            place[leaf] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SettingsError(f"the value of the override {word!r} is not valid YAML") from None
    return nested


def _last(layers: Iterable[Layer], key: str) -> str | None:
    """Return the name that the last layer which has the key gives to it."""
    given = [value for layer in layers if (value := layer.values.get(key)) is not None]
    if given and not isinstance(given[-1], str):
        raise SettingsError(f"{key} must be a name, not {given[-1]!r}")
    return given[-1] if given else None


def _merge(
    into: dict[str, Any], values: Any, *, origins: dict[str, str], origin: str, prefix: str = ""
) -> None:
    """Lay a layer's values over those that are there, and note where each of them is from."""
    if not isinstance(values, Mapping):
        where = prefix.rstrip(".") or "it"
        raise SettingsError(f"{origin}: {where} must hold names and values, not {values!r}")
    for owner in ("name", "source"):  # options were another model's, or another source's
        if into.get(owner, values.get(owner)) != values.get(owner, into.get(owner)):
            into.pop("options", None)
    for key, value in values.items():
        name = f"{prefix}{key}"
        origins[name] = origin
        if prefix == "data." and key in FORMER_DATA_SETTINGS:
            options = {"options": {key: value}}
            _merge(into, options, origins=origins, origin=origin, prefix=prefix)
            if value is None:  # as the former setting was before anybody gave it a value
                into["options"].pop(key, None)
        elif isinstance(value, Mapping) and isinstance(into.get(key, {}), dict):
            inside = into.setdefault(key, {})
            _merge(inside, value, origins=origins, origin=origin, prefix=f"{name}.")
        else:
            into[key] = value


def _explain(kind: type[BaseModel], error: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """Return one of pydantic's errors as a line: where, what it was, what would be right."""
    path = [str(part) for part in error["loc"]]
    while path and not any(".".join(path) == key for key in origins) and error["type"] != "missing":
        path = path[:-1]  # drop the names of union members, which mean nothing to a reader
    key = ".".join(path)
    where = f"{origins[key]}: " if key in origins else ""
    if error["type"] == "extra_forbidden":
        near = did_you_mean(path[-1], _fields(kind, path[:-1]))
        return f"{where}there is no setting {key!r}: {near}"
    if error["type"] == "missing":
        return f"{where}the setting {key!r} is needed and was not given"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "model_type" and key:
        one = f"{key}.{_fields(kind, path)[0]}"
        return f"{where}{key} is a section, and takes values by name, such as {one}"
    if error["type"] == "string_type" and isinstance(error["input"], bool):
        message = (
            "a text is needed, and yes, no, on and off mean true and false unless they are quoted: "
            f"write \"{key}=['yes', 'no']\""
        )
    return f"{where}{key} is {error['input']!r}: {message}" if key else f"{where}{message}"


def _fields(kind: type[BaseModel], path: Iterable[str]) -> list[str]:
    """Return the names of the settings in the section at this path."""
    for name in path:
        annotation = kind.model_fields[name].annotation
        options = [annotation, *get_args(annotation)]
        kind = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return list(kind.model_fields)
