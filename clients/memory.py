"""What a client keeps from round to round: duals, momentum, a model of its own.

It lives in Flower's state while the run and the node last, and on disk beside that, a file a round, so that it survives
a restart of the node and a run that is resumed. Where all clients keep their files in one run's folder, as simulated
ones do, it is on disk alone: a simulation holds the state of every client in one process, and of a thousand clients
only those of the round have to be in memory.

The server says after which round it counts on it, the last one in which it merged this client's reply: a reply that got
lost, or a run that goes on from an earlier checkpoint, rolls the client back to the same place.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from safetensors.numpy import load_file, save_file

ARRAYS, NOTE = "memory", "memory-note"


def default_root() -> Path:
    """Where nodes keep such files: $FEDIVON_STATE, or ~/.cache/fedivon-state."""
    return Path(os.environ.get("FEDIVON_STATE") or "~/.cache/fedivon-state").expanduser()


class Memory:
    """Named arrays after each round; `folder` is this client's own in this run, `state` None for disk alone."""

    def __init__(self, state: RecordDict | None, folder: Path):
        self.state, self.folder = RecordDict() if state is None else state, folder

    def recall(self, server_round: int) -> dict[str, np.ndarray]:
        """The arrays as they were kept in that round; none for round 0, which is before the first."""
        if server_round == 0:
            return {}
        if NOTE in self.state and self.state[NOTE]["round"] == server_round and self.state[NOTE]["run"] == self._run:
            return {name: array.numpy().copy() for name, array in self.state[ARRAYS].items()}
        path = self._path(server_round)
        if not path.is_file():
            raise ValueError(f"what this client kept in round {server_round} is gone: there is no {path}")
        return load_file(path)

    def keep(self, server_round: int, arrays: dict[str, np.ndarray], needed: Collection[int] = ()) -> None:
        """Keeps the arrays of a round, and forgets those of all others but the `needed` ones."""
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        self.state[ARRAYS] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
        self.state[NOTE] = ConfigRecord({"round": server_round, "run": self._run})
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(server_round)
        partial = path.with_suffix(".partial")
        save_file(arrays, partial)
        partial.replace(path)
        for old in self.folder.glob("round-*.safetensors"):
            if int(old.stem.removeprefix("round-")) not in {server_round, *needed}:
                old.unlink(missing_ok=True)

    @property
    def _run(self) -> str:
        return str(self.folder)

    def _path(self, server_round: int) -> Path:
        return self.folder / f"round-{server_round:06d}.safetensors"
