"""Files of overrides, as `--set-file` takes them and `fedivon tune` writes them.

A file holds dotted names or nested sections; under `methods: <strategy>:` stand values for one
method alone, as in an experiment. It becomes overrides, as `--set` would give them, so that it is
read where the command is given, and no server needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fedivon_app.core.compose import compose
from fedivon_app.core.dotted import flat
from fedivon_app.core.errors import SettingsError, UserError
from fedivon_app.core.text import one_line
from fedivon_app.core.yaml_reading import read_yaml
from fedivon_app.methods import settings_of
from fedivon_app.report.grouping import written
from fedivon_app.tuning.fields import check_names, nested_values
from fedivon_app.tuning.space import words_of

METHODS = "methods"
COMMAND_LINE = "the command line"  # which a file's values are taken for when they are composed
OWN_SECTIONS = ("client.", "merge.", "server.")  # what belongs to a method, and goes with it


def words_of_file(
    path: Path, experiment: str, strategies: Iterable[str] = (), given: Iterable[str] = ()
) -> list[str]:
    """Return the overrides of a file, without those that the command line gives as well.

    Names are checked for the methods that are asked for, or else for the experiment's own; `given`
    are words such as `client.epochs=2`, whose names win over the file's.
    """
    values = _read(path)
    methods = values.pop(METHODS, None) or {}
    if not isinstance(methods, Mapping) or not all(_is_mapping(own) for own in methods.values()):
        raise SettingsError(f"{path}: methods must hold names of methods, and values of each")
    common = flat(values)
    own = {name: flat(part or {}) for name, part in methods.items()}
    asked = list(strategies)
    for strategy in asked or _own_strategy(experiment):
        check_names(common, _kind(strategy, str(path)), str(path))
    for strategy, part in own.items():
        check_names(part, _kind(strategy, f"{path}: methods"), f"{path}: methods.{strategy}")
    won = {word.partition("=")[0] for word in given}
    words = words_of(_without(common, won))
    kept = {strategy: nested_values(_without(part, won)) for strategy, part in own.items()}
    if any(kept.values()):
        words = [*words, f"{METHODS}={written(kept)}"]
    names = common.keys() | {name for part in own.values() for name in part}
    all_words = [*words, *given]
    for strategy in asked or _own_strategy(experiment):
        _check_values(path, experiment, strategy, all_words, names - won)
    return words


def _check_values(
    path: Path, experiment: str, strategy: str, words: list[str], names: Collection[str]
) -> None:
    """Raise a SettingsError that names the file if values of these names, which it gives, are bad.

    What else is wrong is the command's to say.
    """
    try:
        compose(settings_of, experiment, strategy, words)
    except SettingsError as error:
        told = str(error).replace(f"{COMMAND_LINE}: ", f"{path}: ")
        lines = told.splitlines()
        if all(line.startswith(tuple(f"{path}: {name} is " for name in names)) for line in lines):
            raise SettingsError(told) from None


def plain_words(words: Iterable[str], strategy: str) -> list[str]:
    """Return overrides as they are for one method: its own under their plain names, in order."""
    plain: list[str] = []
    prefix = f"{METHODS}.{strategy}."
    for word in words:
        name, _, value = word.partition("=")
        if name == METHODS:
            own = (yaml.safe_load(value) or {}).get(strategy) or {}
            plain += words_of(flat(own))
        elif not name.startswith(f"{METHODS}."):
            plain.append(word)
        elif name.startswith(prefix):
            plain.append(word.removeprefix(prefix))
    return plain


def own_words(words: Iterable[str]) -> dict[str, Any]:
    """Return those of one method's overrides that belong to the method, as values by name."""
    pairs = [word.partition("=") for word in words]
    return {
        name: yaml.safe_load(value) for name, _, value in pairs if name.startswith(OWN_SECTIONS)
    }


def file_text(methods: Mapping[str, Mapping[str, Any]], comments: Iterable[str]) -> str:
    """Return a file with values by dotted name for each method, below comments."""
    parts = {strategy: nested_values(values) for strategy, values in methods.items()}
    head = "".join(f"# {line}\n" for line in comments)
    body: str = yaml.safe_dump({METHODS: parts}, sort_keys=False)
    return head + body


def _read(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid YAML: {one_line(error)}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise SettingsError(f"{path} must hold names and values, such as client.epochs: 2")
    return values


def _is_mapping(part: object) -> bool:
    return part is None or isinstance(part, Mapping)


def _own_strategy(experiment: str) -> list[str]:
    try:
        return [compose(settings_of, experiment).strategy]
    except SettingsError:
        return []  # what is wrong with the experiment is the command's to say


def _kind(strategy: str, origin: str) -> Any:
    try:
        return settings_of(strategy)
    except UserError as error:
        raise SettingsError(f"{origin}: {error}") from None


def _without(values: Mapping[str, Any], won: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in won}
