"""A run's folder: the settings it really used, a line of metrics a round, checkpoints, a summary."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file, save_file

from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.settings import Settings, SettingsError, validate
from fedivon_app.methods import settings_of

KEPT = 2  # checkpoints, besides the best one


class Run:
    """A folder with settings.yaml, metrics.jsonl, summary.json and checkpoint/."""

    def __init__(self, folder: Path, settings: Settings):
        self.folder = folder
        self.settings = settings

    @classmethod
    def create(cls, settings: Settings) -> Run:
        root = Path(settings.run.folder or "~/fedivon-runs").expanduser()
        if not root.is_absolute():
            raise SettingsError(
                f"run.folder is {settings.run.folder!r}: give an absolute path, for it is the server's"
            )
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{settings.experiment}-{settings.strategy}"
        folder = root / name
        number = 2
        while True:
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:
                folder = root / f"{name}-{number}"
                number = number + 1
        run = cls(folder, settings)
        run.write(
            "settings.yaml", yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
        )
        return run

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """A run made before."""
        folder = Path(folder).expanduser()
        path = folder / "settings.yaml"
        if not path.is_file():
            raise SettingsError(f"{folder} is no run folder: it has no settings.yaml")
        try:
            values = yaml.safe_load(path.read_text())
            kind = settings_of(values["strategy"])
        except yaml.YAMLError as error:
            raise SettingsError(
                f"{path} is not valid YAML: {' '.join(str(error).split())}"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{path}: {error}") from None
        return cls(folder, validate(kind, values, dict.fromkeys(values, str(path))))

    def resume(self) -> tuple[int, Payload, dict[str, np.ndarray]] | None:
        """The last checkpoint, with the metrics cut back to it; None where the run has not got that far."""
        checkpoints = self.checkpoints()
        if not checkpoints:
            self.write("metrics.jsonl", "")
            return None
        last = checkpoints[-1]
        lines = [json.dumps(record) for record in self.metrics() if record["round"] <= last[0]]
        self.write("metrics.jsonl", "".join(f"{line}\n" for line in lines))
        return last[0], *self.load(last[1])

    def checkpoints(self) -> list[tuple[int, Path]]:
        return sorted(
            (int(p.name.removeprefix("round-")), p) for p in self.folder.glob("checkpoint/round-*")
        )

    @staticmethod
    def load(checkpoint: Path) -> tuple[Payload, dict[str, np.ndarray]]:
        """The global posterior and the strategy's own state of a checkpoint folder."""
        arrays = load_file(checkpoint / "posterior.safetensors")
        order = json.loads((checkpoint / "order.json").read_text())
        return Raw().decode({name: arrays[name] for name in order}), load_file(
            checkpoint / "state.safetensors"
        )

    def save(self, server_round: int, payload: Payload, state: dict[str, np.ndarray]) -> None:
        """Writes a checkpoint, whole or not at all, and removes the oldest."""
        self._save(f"round-{server_round:06d}", payload, state)
        for _, old in self.checkpoints()[:-KEPT]:
            shutil.rmtree(old)

    def save_best(
        self, server_round: int, payload: Payload, state: dict[str, np.ndarray], score: float
    ) -> None:
        self._save("best", payload, state, {"round": server_round, "score": score})

    def best(self) -> dict[str, Any] | None:
        """Round and held-out score of the best checkpoint."""
        path = self.folder / "checkpoint" / "best" / "best.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def _save(
        self, name: str, payload: Payload, state: dict[str, np.ndarray], best: dict | None = None
    ) -> None:
        folder = self.folder / "checkpoint"
        partial = folder / f".{name}.partial"
        target = folder / name
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        arrays = Raw().encode(payload)
        save_file(arrays, partial / "posterior.safetensors")
        save_file(state, partial / "state.safetensors")
        (partial / "order.json").write_text(json.dumps(list(arrays)))
        if best is not None:
            (partial / "best.json").write_text(json.dumps(best))
        if target.exists():  # a folder cannot replace another in one step: keep the old one until the new one is there
            old = folder / f".{name}.old"
            shutil.rmtree(old, ignore_errors=True)
            target.rename(old)
            partial.rename(target)
            shutil.rmtree(old)
        else:
            partial.rename(target)

    def append(self, record: dict[str, Any]) -> None:
        """One line of metrics.jsonl."""
        with open(self.folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The rounds so far; a line that was cut off while being written is passed over."""
        path = self.folder / "metrics.jsonl"
        for line in path.read_text().splitlines() if path.is_file() else ():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                return

    def summarise(self, status: str, detail: str = "") -> dict[str, Any]:
        """summary.json: how the run ended, the last scores, the scores at the best held-out round, totals, versions."""
        records = list(self.metrics())
        scored = [r for r in records if r.get("gm")]
        best = self.best()
        summary = {
            "status": status,
            "detail": detail,
            "experiment": self.settings.experiment,
            "strategy": self.settings.strategy,
            "seed": self.settings.seed,
            "rounds": records[-1]["round"] if records else 0,
            "final": scored[-1]["gm"] if scored else None,
            "personal": next((r["pm"] for r in reversed(records) if r.get("pm")), None),
            "best": best
            and best
            | {"gm": next((r["gm"] for r in records if r["round"] == best["round"]), None)},
            "bytes_up": sum(r["bytes_up"] for r in records),
            "bytes_down": sum(r["bytes_down"] for r in records),
            "dropped": sum(len(r["dropped"]) for r in records),
            "seconds": sum(r["seconds"]["train"] + r["seconds"]["evaluate"] for r in records),
            "versions": {name: version(name) for name in ("flwr", "torch", "numpy")}
            | {"python": platform.python_version()},
        }
        self.write("summary.json", json.dumps(summary, indent=2) + "\n")
        return summary

    def write(self, name: str, text: str) -> None:
        partial = self.folder / f".{name}.partial"
        partial.write_text(text)
        partial.replace(self.folder / name)
