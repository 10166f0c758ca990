"""Sources as memory-mapped `.npy` files, so that many processes share one copy.

A source's folder holds `x_train.npy`, `y_train.npy`, ... (whatever it has of FIELDS) and `meta.json`. It appears by one
rename, complete or not at all, and may be deleted at any time.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedivon_app.datasets.base import Source

try:
    import fcntl
except (
    ImportError
):  # no such locks on Windows: racing processes then repeat the work, and the first rename wins
    fcntl = None

FIELDS = tuple(
    f"{kind}_{part}" for kind in ("x", "y", "subclass", "owner") for part in ("train", "test")
)


def cached(folder: Path, build: Callable[[], Source]) -> Source:
    """The source kept in `folder`, built and stored first if it is not there; in memory if it cannot be stored."""
    found = open_source(folder)
    if found is not None:
        return found
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return read_only(build())
    with locked(folder.parent / f"{folder.name}.lock"):
        found = open_source(folder)
        if found is not None:
            return found
        source = build()
        try:
            store(folder, source)
        except OSError:
            return read_only(source)
        return open_source(folder) or read_only(source)


def open_source(folder: Path) -> Source | None:
    """The stored source with its arrays mapped read-only, or None if the folder is missing or damaged."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        arrays = {
            field: np.load(folder / f"{field}.npy", mmap_mode="r") for field in meta["fields"]
        }
        names = meta["class_names"] and tuple(meta["class_names"])
        return Source(
            name=meta["name"], num_classes=meta["num_classes"], class_names=names, **arrays
        )
    except (OSError, ValueError, EOFError, KeyError, TypeError):
        return None


def store(folder: Path, source: Source) -> None:
    """Write the source beside its place and rename it there; if another process was first, its copy stays."""
    arrays = {field: array for field in FIELDS if (array := getattr(source, field)) is not None}
    temporary = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    try:
        for field, array in arrays.items():
            np.save(temporary / f"{field}.npy", np.ascontiguousarray(array))
        named = {"num_classes": source.num_classes, "class_names": source.class_names}
        meta = {"name": source.name, **named, "fields": list(arrays)}
        (temporary / "meta.json").write_text(json.dumps(meta))
        os.chmod(temporary, 0o755)
        if folder.exists() and open_source(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_only(source: Source) -> Source:
    """The same source with arrays that cannot be written to, as the mapped ones cannot."""
    views = {
        field: array.view() for field in FIELDS if (array := getattr(source, field)) is not None
    }
    for view in views.values():
        view.flags.writeable = False
    return replace(source, **views)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file while the body runs; go on without it where locks are not to be had."""
    if fcntl is None:
        yield
        return
    try:
        handle = open(path, "a")  # noqa: SIM115
    except OSError:
        yield
        return
    with handle:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
