"""docs/results/<experiment>.json: what was measured under each condition of an experiment.

What all of a file's runs have in common, of their settings and of their code, stands once at its
top; a condition and a run only say what differs.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedivon_app
from fedivon_app.core.dotted import flat
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.files import write_text
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import one_line
from fedivon_app.methods import settings_of
from fedivon_app.runs.fingerprint import ASLEEP, changed, code_of
from fedivon_app.tables.conditions import Condition
from fedivon_app.tables.outcome import Outcome, as_json

# No number depends on these: where things lie, how long the server waits, how often it saves.
ASIDE = (
    "seed",
    "data.root",
    "client.device",
    "run.",
    "server.round_timeout",
    "server.node_timeout",
)


@dataclass(frozen=True)
class Measured:
    """The runs of a condition by seed, and the settings that they were made with."""

    condition: Condition
    settings: Mapping[str, Any]
    runs: Mapping[int, Outcome]


class ResultFiles:
    """The folder of results, of which each experiment has a file.

    What it does not have is looked for among those that are shipped, if there are any.
    """

    def __init__(self, folder: Path, shipped: Path | None = None):
        self.folder = folder
        self.shipped = shipped
        self._read: dict[str, dict[Condition, Measured]] = {}

    def find(self, condition: Condition) -> Measured | None:
        """Return what was measured under a condition, or None."""
        return self.of(condition.experiment).get(condition)

    def of(self, experiment: str) -> dict[Condition, Measured]:
        """Return all that was measured of an experiment."""
        if experiment not in self._read:
            path = self.folder / f"{experiment}.json"
            if not path.is_file() and self.shipped is not None:
                path = self.shipped / path.name
            self._read[experiment] = read_results(path)
        return self._read[experiment]

    def add(self, condition: Condition, settings: AnySettings, outcome: Outcome) -> None:
        """Keep an outcome, in place of an earlier one of the same condition and seed.

        Under settings that have changed, earlier seeds are dropped: they are not to be averaged
        with it. What others have added since the file was read stays in it.
        """
        leaves = leaves_of(settings)
        with _alone_in(self.folder):
            self._read.pop(condition.experiment, None)
            known = dict(self.of(condition.experiment))
            before = known.get(condition)
            same = before is not None and not differing(before.settings, leaves, condition)
            kept = before.runs if before is not None and same else {}
            runs = dict(sorted({**kept, outcome.seed: outcome}.items()))
            known[condition] = Measured(condition, leaves, runs)
            self._read[condition.experiment] = known
            write_results(self.folder / f"{condition.experiment}.json", list(known.values()))


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep others from writing to the folder meanwhile, by a lock on the folder itself."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise SettingsError(f"cannot write to {folder}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def result_files(folder: Path) -> ResultFiles:
    """Return the results of the checkout, or, where FedIvon is installed, those of a folder.

    The numbers that come with an installed package are read and never written to.
    """
    places = [Path(place) for place in fedivon_app.__path__]
    checkout = next((p / "docs" / "results" for p in places if (p / "docs").is_dir()), None)
    return ResultFiles(checkout or folder, shipped=None if checkout else places[0] / "results")


def leaves_of(settings: AnySettings) -> dict[str, Any]:
    """Return the settings that a number depends on, by their dotted names."""
    values = flat(settings.model_dump(mode="json"))
    return {name: value for name, value in values.items() if not name.startswith(ASIDE)}


def changed_since(measured: Measured, run: Outcome) -> list[str]:
    """Return what has changed since a run was made: modules of the code, and settings.

    A setting that did not exist then has not changed as long as it has its default.
    """
    try:
        settings = measured.condition.settings()
    except SettingsError as error:
        return [f"settings ({one_line(error)})"]
    modules = [_path(name) for name in changed(run.code, code_of(settings))]
    return [*modules, *differing(measured.settings, leaves_of(settings), measured.condition)]


def changed_settings(before: Mapping[str, Any], condition: Condition) -> list[str]:
    """Return the settings of a condition that are not what they were."""
    try:
        settings = condition.settings()
    except SettingsError as error:
        return [f"settings ({one_line(error)})"]
    return differing(before, leaves_of(settings), condition)


def differing(before: Mapping[str, Any], now: Mapping[str, Any], condition: Condition) -> list[str]:
    """Return the names of settings that are not what they were.

    One that did not exist before is the same as long as it has its default.
    """
    kind = settings_of(condition.strategy)
    named = {"experiment": condition.experiment, "strategy": condition.strategy}
    defaults = leaves_of(kind.model_validate(named))
    same = {name for name in now if now[name] == before.get(name, defaults.get(name))}
    return sorted((now.keys() | before.keys()) - same)


def _path(module: str) -> str:
    name = module.removesuffix(ASLEEP).removeprefix("fedivon_app.")
    return name.replace(".", "/") + ".py"


def read_results(path: Path) -> dict[Condition, Measured]:
    """Read an experiment's file; there may be none yet."""
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {one.condition: one for one in _unpacked(values, path.stem)}
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path} is not a file of results: {one_line(error)}") from None


def write_results(path: Path, measured: Sequence[Measured]) -> None:
    """Write an experiment's file."""
    settings = common([one.settings for one in measured])
    code = common([run.code for one in measured for run in one.runs.values()])
    conditions = []
    for one in sorted(measured, key=lambda one: (one.condition.strategy, one.condition.set)):
        runs = [as_json(run) | {"code": rest(run.code, code)} for run in one.runs.values()]
        shared = common([run["code"] for run in runs])
        conditions.append(
            {
                "strategy": one.condition.strategy,
                "set": list(one.condition.set),
                "settings": rest(one.settings, settings),
                "code": shared,
                "runs": [run | {"code": rest(run["code"], shared)} for run in runs],
            }
        )
    values = {"settings": settings, "code": code, "conditions": conditions}
    write_text(path, pretty(values) + "\n")


def _unpacked(values: Mapping[str, Any], experiment: str) -> list[Measured]:
    found = []
    for one in values["conditions"]:
        condition = Condition(experiment, one["strategy"], tuple(one["set"]))
        runs = [
            Outcome.model_validate(run | {"code": values["code"] | one["code"] | run["code"]})
            for run in one["runs"]
        ]
        settings = values["settings"] | one["settings"]
        found.append(Measured(condition, settings, {run.seed: run for run in runs}))
    return found


def common(dictionaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries that are the same in all of these dictionaries."""
    first, *others = dictionaries or [{}]
    return {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in others)
    }


def rest(dictionary: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a dictionary that are not among the shared ones."""
    return {key: value for key, value in dictionary.items() if key not in shared}


def pretty(value: Any, indent: int = 0) -> str:
    """Return JSON in which what has no dictionary inside stands on one line."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(one, dict | list) for one in inside):
        return json.dumps(value, ensure_ascii=False)
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        lines = [f"{pad}{json.dumps(key)}: {pretty(one, indent + 1)}" for key, one in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
    lines = [f"{pad}{pretty(one, indent + 1)}" for one in value]
    return "[\n" + ",\n".join(lines) + "\n" + " " * indent + "]"
