"""Files that appear whole or not at all: they are written aside, and renamed into their place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def default_state_root() -> Path:
    """Return where nodes keep what lasts: $FEDIVON_STATE, or ~/.cache/fedivon-state."""
    return Path(os.environ.get("FEDIVON_STATE") or "~/.cache/fedivon-state").expanduser()


@contextmanager
def written_aside(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """Give a path to write to; what is there after the block is renamed to `path`.

    If the block raises, `path` stays as it was. With `sync` the contents are on the disk before the
    rename, so that they survive a power failure.
    """
    aside = path.with_name(f".{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside.unlink(missing_ok=True)
    try:
        yield aside
        if sync:
            with open(aside, "rb+") as file:
                os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> Path:
    """Write a text file in one step, and return its path."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")
    return path


def write_bytes(path: Path, data: bytes, *, secret: bool = False) -> Path:
    """Write a file in one step.

    A secret one is readable by its owner alone from its first byte on.
    """
    with written_aside(path) as aside:
        mode = 0o600 if secret else 0o644
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    return path
