"""The runs that are there: how each of them ended, or how far it has got."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedivon_app.core.settings import SettingsError
from fedivon_app.runs.folder import Run

TRACES = ("metrics.jsonl", "summary.json", "checkpoint")  # of a run whose settings are gone
PARTS = ("test", "holdout", "clients_before_training")
PATIENCE = 60.0  # seconds without a new round, at the least, after which a run counts as unfinished


@dataclass(frozen=True)
class Found:
    """A run's folder.

    `status` is that of summary.json (completed, stopped, failed), or running or unfinished where the run has not come
    to its end, or unreadable; `detail` says why it failed or cannot be read.
    """

    folder: Path
    status: str
    detail: str = ""
    run: Run | None = None
    rounds: int = 0
    scores: dict[str, Any] | None = None
    seconds: float = 0.0


def find(folders: Iterable[str | Path]) -> list[Found]:
    """The runs that these folders are, or hold, or that sweeps in them hold; newest last."""
    places: dict[Path, Path] = {}
    for folder in folders:
        if not Path(folder).is_dir():
            raise SettingsError(f"there is no folder {folder}")
        places |= {place.resolve(): place for place in _places(Path(folder), depth=2)}
    return sorted(
        (look(place) for place in places.values()), key=lambda found: _began(found.folder)
    )


def runs_in(folders: Iterable[str | Path]) -> list[Run]:
    """The runs of these folders, in their order; a folder of runs, such as a sweep's, stands for those inside."""
    runs = []
    for folder in folders:
        if (Path(folder).expanduser() / "settings.yaml").is_file():
            runs.append(Run.open(folder))
        elif inside := [found.run for found in find([Path(folder).expanduser()]) if found.run]:
            runs += inside
        else:
            raise SettingsError(f"{folder} is no run folder, and there is no readable run inside")
    return runs


def look(folder: Path) -> Found:
    """The run of this folder; never raises for what is wrong with it."""
    try:
        run = Run.open(folder)
        summary = _summary(folder)
        if summary and summary["status"] == "completed":
            return _ended(run, summary)
        records = list(run.metrics())
        rounds = records[-1]["round"] if records else 0
        if summary and rounds <= summary["rounds"]:
            return _ended(run, summary)
        scores = next((record["gm"] for record in reversed(records) if record.get("gm")), None)
        times = [record["seconds"]["train"] + record["seconds"]["evaluate"] for record in records]
        quiet = time.time() - max(path.stat().st_mtime for path in folder.glob("*.*"))
        status = "running" if quiet < max(PATIENCE, 3 * max(times, default=0)) else "unfinished"
        return Found(folder, status, run=run, rounds=rounds, scores=scores, seconds=sum(times))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Found(folder, "unreadable", " ".join(_reason(error).split()))


def last_scores(scores: dict[str, Any] | None) -> dict[str, float] | None:
    """Those on the test set if there is one, by Monte Carlo if there are samples."""
    for part in PARTS:
        ways = (scores or {}).get(part) or {}
        for way in ("mc", "mean"):
            if way in ways:
                return ways[way]
    return None


def _ended(run: Run, summary: dict[str, Any]) -> Found:
    status = summary["status"]
    detail = summary.get("detail", "")
    return Found(
        run.folder, status, detail, run, summary["rounds"], summary["final"], summary["seconds"]
    )


def _summary(folder: Path) -> dict[str, Any] | None:
    path = folder / "summary.json"
    return json.loads(path.read_text()) if path.is_file() else None


def _places(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / "settings.yaml").is_file() or any((folder / trace).exists() for trace in TRACES):
        yield folder
    elif depth:
        for inside in sorted(folder.iterdir()):
            if inside.is_dir() and not inside.name.startswith("."):
                yield from _places(inside, depth - 1)


def _began(folder: Path) -> tuple[str, str]:
    """The date that a run's folder begins with, or that of its last change where somebody renamed it."""
    dated = re.match(r"\d{8}-\d{6}", folder.name)
    return dated[
        0
    ] if dated else f"{datetime.fromtimestamp(folder.stat().st_mtime):%Y%m%d-%H%M%S}", folder.name


def _reason(error: Exception) -> str:
    return (
        f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    )
