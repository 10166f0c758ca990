"""Run folders and files for the tests of the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of
from fedivon_app.runs.folder import Run
from fedivon_app.runs.status import RunStatus

SCORES = {"accuracy": 0.5, "nll": 1.25, "ece": 0.1, "brier": 0.6}


def write_npz(path: Path, labels: np.ndarray | None = None) -> None:
    """Write a small data set in the format of the source `npz`."""
    rng = np.random.default_rng(0)
    np.savez(
        path,
        x_train=rng.integers(0, 256, (40, 8, 8), np.uint8),
        y_train=np.arange(40) % 10 if labels is None else labels,
        x_test=rng.integers(0, 256, (20, 8, 8), np.uint8),
        y_test=np.arange(20) % 10,
    )


def make_run(
    folder: Path,
    rounds: int = 2,
    status: RunStatus | None = RunStatus.COMPLETED,
    *,
    detail: str = "",
    name: str | None = None,
    planned: int = 4,
    seed: int = 0,
    **scores: Any,
) -> Run:
    """Make a run's folder with this many rounds; without a status there is no summary."""
    overrides = [f"run.folder={folder}", f"rounds={planned}", f"seed={seed}"]
    run = Run.create(compose(settings_of, "demo", None, overrides))
    for server_round in range(1, rounds + 1):
        record: dict[str, Any] = {
            "round": server_round,
            "bytes_up": 1,
            "bytes_down": 1,
            "dropped": [],
            "clients": [],
            "merged": True,
            "seconds": {"train": 60.0, "evaluate": 30.0, "clients": []},
        }
        run.append(record | ({"gm": scores} if scores else {}))
    if status:
        run.summarise(status, detail)
    return Run.open(run.folder.rename(run.folder.with_name(name))) if name else run


def age(folder: Path, seconds: float) -> None:
    """Make the files of a folder as old as that."""
    for path in folder.rglob("*"):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))
