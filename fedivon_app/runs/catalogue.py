"""The runs that are there: how each of them ended, or how far it has got.

A run is looked at without its method, whose import takes seconds; it is opened when asked for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.text import one_line
from fedivon_app.runs.records import (
    METRICS,
    SETTINGS,
    SUMMARY,
    read_metrics,
    read_settings,
    read_summary,
)
from fedivon_app.runs.status import RunStatus

if TYPE_CHECKING:
    from fedivon_app.runs.folder import Run

TRACES = (METRICS, SUMMARY, "checkpoint")  # of a run whose settings are gone
PARTS = ("test", "holdout", "clients_before_training")
PATIENCE = 60.0  # seconds without a new round, at the least, after which a run counts as unfinished


@dataclass(frozen=True)
class Found:
    """A run's folder, and what can be told of it without its method.

    `status` is that of summary.json, or running or unfinished where the run has not come to its
    end, or unreadable; `detail` says why it failed or cannot be read. `rounds` are done of those
    `planned`. `settings` are those of settings.yaml, as they stand there.
    """

    folder: Path
    status: RunStatus
    detail: str = ""
    experiment: str = ""
    strategy: str = ""
    planned: int = 0
    rounds: int = 0
    scores: dict[str, Any] | None = None
    seconds: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        """Whether settings and records of the run could be read."""
        return self.status is not RunStatus.UNREADABLE

    @cached_property
    def run(self) -> Run | None:
        """The run itself, or None if it, or one of its settings, is not to be understood."""
        try:
            return _open(self.folder) if self.readable else None
        except SettingsError:
            return None


def find(folders: Iterable[str | Path]) -> list[Found]:
    """Return the runs that these folders are, or hold, or that sweeps in them hold; newest last."""
    places: dict[Path, Path] = {}
    for folder in folders:
        if not Path(folder).is_dir():
            raise SettingsError(f"there is no folder {folder}")
        places |= {place.resolve(): place for place in _places(Path(folder), depth=2)}
    ordered = sorted(places.values(), key=lambda place: (_began(place), place.name))
    return [look(place) for place in ordered]


def newest(folder: Path) -> Path | None:
    """Return the run in a folder, or in a sweep in it, that was written to last, or None."""
    if not folder.is_dir():
        return None
    written = {
        place: max(path.stat().st_mtime for path in place.glob("*.*"))
        for place in _places(folder, depth=2)
        if (place / SETTINGS).is_file()
    }
    return max(written, key=lambda place: (written[place], place.name), default=None)


def runs_in(folders: Iterable[str | Path]) -> list[Run]:
    """Return the runs of these folders in their order; a sweep's folder stands for its runs."""
    runs: list[Run] = []
    for folder in folders:
        place = Path(folder).expanduser()
        if (place / SETTINGS).is_file():
            runs.append(_open(place))
            continue
        inside = [found.run for found in find([place]) if found.run is not None]
        if not inside:
            raise SettingsError(
                f"{folder} is not a run folder, and there is no readable run inside"
            )
        runs += inside
    return runs


def look(folder: Path) -> Found:
    """Return what the run of this folder has come to; nothing that is wrong with it is raised."""
    try:
        return _look(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        # Whatever was done to the files of one run, the others are to be listed.
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        detail = one_line(reason or type(error).__name__)
        return Found(folder, RunStatus.UNREADABLE, detail)


def last_scores(scores: dict[str, Any] | None) -> dict[str, float] | None:
    """Return the scores on the test set if there is one, by Monte Carlo if there are samples."""
    for part in PARTS:
        ways: dict[str, dict[str, float]] = (scores or {}).get(part) or {}
        for way in ("mc", "mean"):
            if way in ways:
                return ways[way]
    return None


def _open(folder: Path) -> Run:
    from fedivon_app.runs.folder import Run  # it knows the methods: only who asks for it waits

    return Run.open(folder)


def _look(folder: Path) -> Found:
    settings = read_settings(folder)
    planned = settings.get("rounds")
    if not isinstance(planned, int) or planned < 1:
        raise SettingsError(f"{folder / SETTINGS}: rounds is {planned!r}, not a number of rounds")
    summary = read_summary(folder)
    records = []
    if summary is None or summary["status"] != RunStatus.COMPLETED:
        records = list(read_metrics(folder))
    rounds = records[-1]["round"] if records else 0
    if summary is not None and rounds <= summary["rounds"]:
        status = RunStatus(summary["status"])
        detail = summary.get("detail", "")
        rounds = summary["rounds"]
        scores = summary["final"]
        seconds = summary["seconds"]
    else:
        times = [record["seconds"]["train"] + record["seconds"]["evaluate"] for record in records]
        status = _pace(folder, max(times, default=0.0))
        detail = ""
        scores = next((record["gm"] for record in reversed(records) if record.get("gm")), None)
        seconds = sum(times)
    return Found(
        folder=folder,
        status=status,
        detail=detail,
        experiment=str(settings.get("experiment", "")),
        strategy=settings["strategy"],
        planned=planned,
        rounds=rounds,
        scores=scores,
        seconds=seconds,
        settings=settings,
    )


def _pace(folder: Path, longest: float) -> RunStatus:
    """A run that was quiet for as long as three of its longest rounds does not run any more."""
    quiet = time.time() - max(path.stat().st_mtime for path in folder.glob("*.*"))
    return RunStatus.RUNNING if quiet < max(PATIENCE, 3 * longest) else RunStatus.UNFINISHED


def _places(folder: Path, depth: int) -> Iterator[Path]:
    if any((folder / name).exists() for name in (SETTINGS, *TRACES)):
        yield folder
    elif depth:
        for inside in sorted(folder.iterdir()):
            if inside.is_dir() and not inside.name.startswith("."):
                yield from _places(inside, depth - 1)


def _began(folder: Path) -> str:
    """The date that a run's folder begins with, or that of its last change where it was renamed."""
    dated = re.match(r"\d{8}-\d{6}", folder.name)
    return dated[0] if dated else f"{datetime.fromtimestamp(folder.stat().st_mtime):%Y%m%d-%H%M%S}"
