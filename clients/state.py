"""What a client keeps from round to round: duals, momentum, a personal model.

It lives in Flower's state while the run and the node last, and on disk beside that, a file a
round, so that it survives a restart of the node and a run that is resumed. Where all clients keep
their files in one run's folder, as simulated ones do, it is on disk alone: a simulation holds the
state of every client in one process, and of a thousand clients only those of the round have to be
in memory.

The server says after which round it counts on it, the last one in which it merged this client's
reply: a reply that got lost, or a run that goes on from an earlier checkpoint, rolls the client
back to the same place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.errors import RunError
from fedivon_app.core.files import written_aside

ARRAYS = "memory"
NOTE = "memory-note"
PERSONAL = "pm."  # stands before the names of a personal model's arrays
VERSION = "1"  # of the files


class Memory:
    """Named arrays after each round.

    `folder` is this client's own in this run; `state` is Flower's, or None for disk alone.
    """

    def __init__(self, state: RecordDict | None, folder: Path):
        self.state = state
        self.folder = folder

    def recall(self, server_round: int) -> dict[str, np.ndarray]:
        """Return the arrays as they were kept in that round.

        There are none for round 0, which is before the first.
        """
        if server_round == 0:
            return {}
        if self.state is not None and self._state_is_of(server_round):
            kept = self.state[ARRAYS]
            assert isinstance(kept, ArrayRecord)
            return {name: array.numpy().copy() for name, array in kept.items()}
        path = self._path(server_round)
        if not path.is_file():
            raise RunError(
                f"what this client kept in round {server_round} is gone: there is no {path}"
            )
        return _load(path)

    def _state_is_of(self, server_round: int) -> bool:
        note = self.state.get(NOTE) if self.state else None
        if note is None:
            return False
        return note.get("round") == server_round and note.get("run") == self._run

    def keep(
        self, server_round: int, arrays: Mapping[str, np.ndarray], needed: Collection[int] = ()
    ) -> None:
        """Keep the arrays of a round, and forget those of all others but the `needed` ones."""
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        if self.state is not None:
            self.state[ARRAYS] = ArrayRecord({name: Array(array) for name, array in whole.items()})
            self.state[NOTE] = ConfigRecord({"round": server_round, "run": self._run})
        _save(self._path(server_round), whole)
        for old in self.folder.glob("round-*.safetensors"):
            if int(old.stem.removeprefix("round-")) not in {server_round, *needed}:
                old.unlink(missing_ok=True)

    @property
    def _run(self) -> str:
        return str(self.folder)

    def _path(self, server_round: int) -> Path:
        return self.folder / f"round-{server_round:06d}.safetensors"


def with_personal(memory: Mapping[str, np.ndarray], model: Payload) -> dict[str, np.ndarray]:
    """Return what a client keeps with this personal model (PM) in place of the one there."""
    rest = {name: array for name, array in memory.items() if not name.startswith(PERSONAL)}
    return rest | {f"{PERSONAL}{name}": array for name, array in Raw().encode(model).items()}


def recall_personal(memory: Mapping[str, np.ndarray]) -> Payload | None:
    """Return the PM among what a client kept, or None for one that has not trained yet."""
    arrays = {
        name.removeprefix(PERSONAL): array
        for name, array in memory.items()
        if name.startswith(PERSONAL)
    }
    return Raw().decode(arrays) if arrays else None


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file whole or not at all, even if the power fails, with a digest of its contents."""
    with written_aside(path, sync=True) as aside:
        save_file(dict(arrays), aside, {"version": VERSION, "sha256": _digest(arrays)})


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with safe_open(path, "numpy") as file:
            known = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise RunError(f"what this client kept cannot be read: {path}: {error}") from None
    if known.get("version") != VERSION:
        raise RunError(
            f"{path} is of version {known.get('version', 'none')}, not {VERSION}: "
            "go on with the version of FedIvon that began the run"
        )
    if known.get("sha256") != _digest(arrays):
        raise RunError(
            f"what this client kept is damaged: {path} does not hold what was written to it"
        )
    return arrays


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the digest of the names, types, shapes and values."""
    found = sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape};".encode())
        found.update(array.data.cast("B") if array.size else b"")
    return found.hexdigest()
