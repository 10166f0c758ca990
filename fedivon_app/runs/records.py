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
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is several times faster


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the values of a run's settings.yaml, of which only the strategy's name is checked."""
    path = folder / SETTINGS
    if not path.is_file():
        raise SettingsError(f"{folder} is no run folder: it has no {SETTINGS}")
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
    """Yield the records of the rounds so far; a line that was cut off ends them."""
    path = folder / METRICS
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def read_code(folder: Path) -> dict[str, Any]:
    """Return the commit and the digests of the modules that a run was made with, if it has them."""
    path = folder / CODE
    if not path.is_file():
        return {}
    code: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return code


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return what summary.json says, or None where the run has not come to its end."""
    path = folder / SUMMARY
    if not path.is_file():
        return None
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return summary
