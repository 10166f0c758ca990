"""Sources as memory-mapped `.npy` files, so that many processes share one copy.

A source's folder holds `x_train.npy`, `y_train.npy`, ... (whatever it has of FIELDS) and
`meta.json`. It appears by one rename, complete or not at all, and may be deleted at any time.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedivon_app.datasets.base import Source
from fedivon_app.datasets.table_format import TableFormat

if sys.platform != "win32":
    import fcntl


def stamp(files: Iterable[str | Path]) -> str:
    """Return a digest of the files' names, sizes and times of change.

    It tells a file that has changed, which is to be read anew.
    """
    digest = hashlib.sha256()
    for file in files:
        with suppress(OSError):  # a missing file is the reader's to complain of
            status = os.stat(file)
            digest.update(
                f"{file} {status.st_size} {status.st_mtime_ns}\n".encode(errors="surrogateescape")
            )
    return digest.hexdigest()


def cached(folder: Path, build: Callable[[], Source]) -> Source:
    """Return the source that is kept in `folder`.

    If it is not there, it is built and stored first; where it cannot be stored, it is served from
    memory.
    """
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
    """Return the stored source with its arrays mapped read-only.

    If the folder is missing or damaged, return None.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text())
        arrays = {
            field: np.load(folder / f"{field}.npy", mmap_mode="r") for field in meta["fields"]
        }
        clients = meta.get("client_names")
        table = meta.get("table")
        return Source.of(
            meta["name"],
            arrays,
            num_classes=meta["num_classes"],
            class_names=meta["class_names"] and tuple(meta["class_names"]),
            client_names=clients and tuple(clients),
            table=table and TableFormat.model_validate(table),
        )
    except (OSError, ValueError, EOFError, KeyError, TypeError):
        return None


def store(folder: Path, source: Source) -> None:
    """Write the source beside its place and rename it there.

    If another process was first, its copy stays.
    """
    arrays = source.arrays
    temporary = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    try:
        for field, array in arrays.items():
            np.save(temporary / f"{field}.npy", np.ascontiguousarray(array))
        meta = {
            "name": source.name,
            "num_classes": source.num_classes,
            "class_names": source.class_names,
            "fields": list(arrays),
            "client_names": source.client_names,
            "table": source.table and source.table.model_dump(),
        }
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
    """Return the same source with arrays that cannot be written to, as the mapped ones cannot."""
    views = {field: array.view() for field, array in source.arrays.items()}
    for view in views.values():
        view.flags.writeable = False
    changed: dict[str, Any] = dict(views)
    return replace(source, **changed)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file while the body runs; go on without it where there is none.

    Windows has no such locks: racing processes then repeat the work, and the first rename wins.
    """
    if sys.platform == "win32":
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
