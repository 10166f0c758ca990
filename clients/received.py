"""What a client was sent: it is kept for the next message, which may say only what has changed.

Payloads are kept by their digests, in files. A message names the digest of what it changes, and
that of what it is to be decoded to, so that a client never goes on from other numbers than the
server thinks: it says what is wrong instead, and is sent the whole posterior the next time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedivon_app.core.codec import Codec, Payload, Raw
from fedivon_app.core.compact import digest
from fedivon_app.core.errors import RunError
from fedivon_app.core.files import written_aside
from fedivon_app.core.instructions import Instructions


@dataclass(frozen=True)
class Received:
    """Payloads by their digests in a folder, of which the `most` newest are kept."""

    folder: Path
    most: int

    def recall(self, name: str) -> Payload | None:
        """Return the payload of this digest, or None if there is none that is sound."""
        try:
            with safe_open(self._path(name), "numpy") as file:
                order = json.loads((file.metadata() or {})["order"])
                payload = Raw().decode({key: file.get_tensor(key) for key in order})
        except (SafetensorError, OSError, KeyError, ValueError):
            return None
        return payload if digest(payload) == name else None

    def keep(self, name: str | None, payload: Payload) -> None:
        """Keep a payload by its digest, and forget the oldest; one without a digest is not kept."""
        if name is None or self._path(name).exists():
            return
        arrays = {key: np.ascontiguousarray(a) for key, a in Raw().encode(payload).items()}
        own = self._path(f"{name}-{os.getpid()}")  # others may write the same at the same time
        with written_aside(own) as aside:
            save_file(arrays, aside, {"order": json.dumps(list(arrays))})
        own.replace(self._path(name))
        self._forget()

    def _forget(self) -> None:
        ages = {}
        for path in self.folder.glob("*.safetensors"):
            with suppress(FileNotFoundError):  # of which another client was the first
                ages[path] = path.stat().st_mtime_ns
        for path in sorted(ages, key=lambda path: ages[path])[: -self.most]:
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"


def decoded(
    arrays: Mapping[str, np.ndarray], told: Instructions, codec: Codec, received: Received
) -> Payload:
    """Return what a message says, from what was received before if it is a change to that."""
    if told.sent is None:
        return codec.decode(arrays)
    if (known := received.recall(told.sent)) is not None:
        return known
    held = None
    if told.held is not None:
        held = received.recall(told.held)
        if held is None:
            raise RunError(
                f"what the server sent this client before is gone or damaged: {received.folder} "
                "has no posterior of that digest; the next one comes whole"
            )
    payload = codec.decode(arrays, held)
    if digest(payload) != told.sent:
        raise RunError(
            "what the server sent is decoded to other numbers here than there; "
            "the next one comes whole"
        )
    return payload
