"""What a run has written into its folder, as plain values.

Nothing here knows the methods, whose import takes seconds: this is for whoever only looks at runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.text import one_line

SETTINGS = "settings.yaml"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
CODE = "code.json"
UNCERTAINTY = "uncertainty.json"
MODEL = "model.json"
# What every summary says.
SUMMARISED = ("status", "experiment", "strategy", "seed", "rounds", "final", "best", "seconds")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is several times faster


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the values of a run's settings.yaml, of which only the strategy's name is checked."""
    path = folder / SETTINGS
    if not path.is_file():
        raise SettingsError(f"{folder} is not a run folder: it has no {SETTINGS}")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid YAML: {one_line(error)}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path} must hold names and values, not {values!r}")
    if not isinstance(values.get("strategy"), str):
        raise SettingsError(f"{path} names no strategy")
    return values


def read_metrics(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of the rounds so far; a last line that was cut off ends them.

    A line before it that is not a record of a round is a SettingsError.
    """
    path = folder / METRICS
    lines = _text(path).splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            if number == len(lines):
                return
            raise SettingsError(f"{path}: line {number} is not valid JSON") from None
        if not isinstance(record, dict) or not isinstance(record.get("round"), int):
            raise SettingsError(f"{path}: line {number} is not a record of a round")
        yield record


def read_code(folder: Path) -> dict[str, Any]:
    """Return the commit and the digests of the modules that a run was made with, if it has them."""
    return read_json(folder / CODE) or {}


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return what summary.json says, or None where the run has not come to its end."""
    path = folder / SUMMARY
    summary = read_json(path)
    lacking = [] if summary is None else [name for name in SUMMARISED if name not in summary]
    if lacking:
        raise SettingsError(f"{path} is damaged: it has no {lacking[0]}")
    return summary


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the names and values that a file holds, or None where there is no such file."""
    if not path.is_file():
        return None
    try:
        values = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path} is not valid JSON: {one_line(error)}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path} must hold names and values, not {values!r}")
    return values


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not a text file: {one_line(error)}") from None
