"""Checkpoints: what a run goes on from, written to disk whole or not at all."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from fedivon_app.core.codec import Payload, Raw

KEPT = 2  # checkpoints, besides the best one
BEST = "best"  # the name of that one's folder


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a run goes on from after a round: the server's model and the strategy's own state."""

    round: int
    payload: Payload
    state: dict[str, np.ndarray]


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that is on disk: the round after which it was taken, and its folder."""

    round: int
    path: Path


@dataclass(frozen=True)
class BestRound:
    """The round whose model did best on the held-out examples; the lower its score, the better."""

    round: int
    score: float


def saved_checkpoints(folder: Path) -> list[SavedCheckpoint]:
    """Return the checkpoints in a folder, oldest first, without the best one."""
    found = [SavedCheckpoint(_round_of(path), path) for path in folder.glob("round-*")]
    return sorted(found, key=lambda saved: saved.round)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint that is in this folder."""
    arrays = load_file(path / "posterior.safetensors")
    order = json.loads((path / "order.json").read_text())
    best = best_round(path)
    return Checkpoint(
        round=_round_of(path) if best is None else best.round,
        payload=Raw().decode({name: arrays[name] for name in order}),
        state=load_file(path / "state.safetensors"),
    )


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint below the folder, and remove the oldest."""
    _save(folder, f"round-{checkpoint.round:06d}", checkpoint)
    for old in saved_checkpoints(folder)[:-KEPT]:
        shutil.rmtree(old.path)


def save_best_checkpoint(folder: Path, checkpoint: Checkpoint, score: float) -> None:
    """Write the checkpoint in place of the one that was best so far."""
    _save(folder, BEST, checkpoint, BestRound(checkpoint.round, score))


def best_round(path: Path) -> BestRound | None:
    """Return what is known of the best checkpoint in its folder; None if it is no such folder."""
    file = path / "best.json"
    if not file.is_file():
        return None
    values = json.loads(file.read_text())
    return BestRound(round=values["round"], score=values["score"])


def _round_of(path: Path) -> int:
    return int(path.name.removeprefix("round-"))


def _save(folder: Path, name: str, checkpoint: Checkpoint, best: BestRound | None = None) -> None:
    partial = folder / f".{name}.partial"
    target = folder / name
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    arrays = Raw().encode(checkpoint.payload)
    save_file(arrays, partial / "posterior.safetensors")
    save_file(checkpoint.state, partial / "state.safetensors")
    (partial / "order.json").write_text(json.dumps(list(arrays)))
    if best is not None:
        (partial / "best.json").write_text(json.dumps(asdict(best)))
    if not target.exists():
        partial.rename(target)
        return
    # A folder cannot replace another in one step: the old one stays until the new one is there.
    old = folder / f".{name}.old"
    shutil.rmtree(old, ignore_errors=True)
    target.rename(old)
    partial.rename(target)
    shutil.rmtree(old)
