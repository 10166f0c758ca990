"""A run's folder: the settings it really used, metrics round by round, checkpoints, a summary."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError

import fedivon_app
from fedivon_app.core.compose import validate
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.files import write_text
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import one_line
from fedivon_app.methods import settings_of
from fedivon_app.runs.checkpoints import (
    BEST,
    BestRound,
    Checkpoint,
    SavedCheckpoint,
    best_round,
    load_checkpoint,
    save_best_checkpoint,
    save_checkpoint,
    saved_checkpoints,
)
from fedivon_app.runs.fingerprint import code_of, mixed
from fedivon_app.runs.records import (
    CODE,
    METRICS,
    SETTINGS,
    SUMMARY,
    read_code,
    read_metrics,
    read_settings,
)
from fedivon_app.runs.status import RunStatus

DEFAULT_ROOT = "~/fedivon-runs"


class Run:
    """A run's folder, in which settings.yaml, metrics.jsonl, summary.json and checkpoint/ lie."""

    def __init__(self, folder: Path, settings: AnySettings):
        self.folder = folder
        self.settings = settings

    @classmethod
    def create(cls, settings: AnySettings, folder: Path | None = None) -> Run:
        """Begin a run in the folder that was chosen for it, or else in a new one.

        A folder that is not empty, or not an absolute path, is a SettingsError.
        """
        place = reserved_folder(settings) if folder is None else _empty_folder(folder.expanduser())
        run = cls(place, settings)
        run.write_settings()
        return run

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open a run that was made before; a SettingsError says why it cannot be opened."""
        place = Path(folder).expanduser()
        path = str(place / SETTINGS)
        values = read_settings(place)
        try:
            kind = settings_of(values["strategy"])
        except SettingsError as error:
            raise SettingsError(f"{path}: {error}") from None
        return cls(place, validate(kind, values, dict.fromkeys(values, path)))

    @property
    def best_folder(self) -> Path:
        """Return the folder of the best checkpoint, which is there if `best` says so."""
        return self._checkpoints / BEST

    @property
    def _checkpoints(self) -> Path:
        return self.folder / "checkpoint"

    def resume(self) -> Checkpoint | None:
        """Return the last checkpoint, and cut the metrics back to it.

        It is None where the run has not got as far as its first one; then all metrics are removed.
        """
        kept = self.checkpoints()
        done = kept[-1].round if kept else -1
        lines = [json.dumps(record) for record in self.metrics() if record["round"] <= done]
        self.write(METRICS, "".join(f"{line}\n" for line in lines))
        return self.load(kept[-1].path) if kept else None

    def checkpoints(self) -> list[SavedCheckpoint]:
        """Return the checkpoints that are kept, oldest first, without the best one."""
        return saved_checkpoints(self._checkpoints)

    @staticmethod
    def load(path: Path) -> Checkpoint:
        """Read the checkpoint that is in this folder; a SettingsError says why it cannot be."""
        try:
            return load_checkpoint(path)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise SettingsError(f"{path} is not a readable checkpoint: {one_line(error)}") from None

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, whole or not at all, and remove the oldest."""
        save_checkpoint(self._checkpoints, checkpoint)

    def save_best(self, checkpoint: Checkpoint, score: float) -> None:
        """Write the checkpoint in place of the one that was best so far."""
        save_best_checkpoint(self._checkpoints, checkpoint, score)

    def best(self) -> BestRound | None:
        """Return round and held-out score of the best checkpoint, or None if there is none."""
        try:
            return best_round(self.best_folder)
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(
                f"{self.best_folder} is not a readable checkpoint: {one_line(error)}"
            ) from None

    def append(self, record: Mapping[str, Any]) -> None:
        """Add the record of a round to metrics.jsonl; it is on the disk when this returns."""
        with open(self.folder / METRICS, "a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Yield the records of the rounds so far; a line that was cut off ends them."""
        return read_metrics(self.folder)

    def summarise(self, status: RunStatus, detail: str = "") -> dict[str, Any]:
        """Write summary.json, and return what is in it.

        It tells how the run ended, the last scores, the scores at the best held-out round, totals
        over all rounds, and versions.
        """
        summary = {
            "status": status,
            "detail": detail,
            "experiment": self.settings.experiment,
            "strategy": self.settings.strategy,
            "seed": self.settings.seed,
            **_totals(list(self.metrics()), self.best()),
            "commit": read_code(self.folder).get("commit", ""),
            "versions": {name: version(name) for name in ("flwr", "torch", "numpy")}
            | {"python": platform.python_version(), "fedivon": fedivon_app.__version__},
        }
        self.write(SUMMARY, json.dumps(summary, indent=2) + "\n")
        return summary

    def note_code(self, commit: str) -> None:
        """Write to code.json with what code the run is made, or goes on."""
        now = code_of(self.settings)
        before = read_code(self.folder).get("modules", now)
        values = {"commit": commit, "modules": mixed(before, now)}
        self.write(CODE, json.dumps(values, indent=1) + "\n")

    def write(self, name: str, text: str) -> None:
        """Write a text file of the folder in one step."""
        write_text(self.folder / name, text)

    def with_settings(self, settings: AnySettings) -> Run:
        """Return the same run with other settings, which are written to its folder."""
        run = Run(self.folder, settings)
        run.write_settings()
        return run

    def write_settings(self) -> None:
        """Write the settings to settings.yaml."""
        values = self.settings.model_dump(mode="json")
        self.write(SETTINGS, yaml.safe_dump(values, sort_keys=False))


def named_folder(settings: AnySettings) -> Path:
    """Choose a new folder for a run of these settings, and leave it to the server to make it.

    The path is the server's: a `~` in it stays, and whether a name is taken is seen only as far as
    the server's disk is ours too.
    """
    base = root_of(settings) / _base_name(settings)
    folder = base
    number = 2
    while folder.expanduser().exists():
        folder = base.with_name(f"{base.name}-{number}")
        number += 1
    return folder


def reserved_folder(settings: AnySettings) -> Path:
    """Make a new folder for a run of these settings, so that no other run can take its name."""
    while True:
        folder = named_folder(settings).expanduser()
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise SettingsError(f"cannot write to {folder.parent}: {error.strerror}") from None
        return folder


def root_of(settings: AnySettings) -> Path:
    """Return the folder in which the folders of runs are made, an absolute path of the server's."""
    root = Path(settings.run.folder or DEFAULT_ROOT)
    if not root.expanduser().is_absolute():
        raise SettingsError(
            f"run.folder is {settings.run.folder!r}: give an absolute path, for it is the server's"
        )
    return root


def _base_name(settings: AnySettings) -> str:
    """The names of the settings may be import paths, whose colons no folder should have."""
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{settings.experiment}-{settings.strategy}"
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name)


def _empty_folder(folder: Path) -> Path:
    if not folder.is_absolute():
        raise SettingsError(
            f"the run's folder is {str(folder)!r}: give an absolute path, for it is the server's"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot write to {folder.parent}: {error.strerror}") from None
    if any(folder.iterdir()):
        raise SettingsError(f"{folder} is not empty: a new run needs a folder of its own")
    return folder


def _totals(records: Sequence[dict[str, Any]], best: BestRound | None) -> dict[str, Any]:
    """What a summary says of all rounds together."""
    gm = {record["round"]: record["gm"] for record in records if record.get("gm")}
    pm = [record["pm"] for record in records if record.get("pm")]
    times = [record["seconds"]["train"] + record["seconds"]["evaluate"] for record in records]
    return {
        "rounds": records[-1]["round"] if records else 0,
        "final": list(gm.values())[-1] if gm else None,
        "personal": pm[-1] if pm else None,
        "best": None if best is None else asdict(best) | {"gm": gm.get(best.round)},
        "bytes_up": sum(record["bytes_up"] for record in records),
        "bytes_down": sum(record["bytes_down"] for record in records),
        "dropped": sum(len(record["dropped"]) for record in records),
        "seconds": sum(times),
    }
