"""Data sets by name.

`load` reads a source once, keeps it below <root>/arrays as memory-mapped `.npy` files and returns
the same object for the same arguments. A known data set is taken from <root>/<name>.npz if that
file exists (CIFAR-100 with superclasses from <root>/cifar100-superclass.npz), else from
torchvision's files below <root>. An `npz` file may lie there too, and be named by its path from
there. A reader of the user's own is named by its import path; see datasets/own_reader.py.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedivon_app.core.errors import DataError
from fedivon_app.core.registry import Registry
from fedivon_app.datasets import builtin, cache, image_folder, npz, table, vision
from fedivon_app.datasets.base import Source, no_option
from fedivon_app.datasets.own_reader import OFFERED, OwnReader

__all__ = ["SOURCES", "DataError", "Source", "default_root", "load", "options_of"]

FORMAT = 2  # of the stored arrays; part of their key
VISION = ("mnist", "fmnist", "emnist-letters", "svhn", "cifar10", "cifar100")
CLASS_NAMES = {  # of data sets whose labels are not their own names
    "fmnist": (
        "T-shirt",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    "cifar10": (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    "emnist-letters": tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
}

Reader = Callable[..., Source]

SOURCES: Registry[Reader] = Registry(
    "data source",
    {
        "digits": builtin.digits,
        "photos": builtin.photos,
        "synthetic": builtin.synthetic,
        "npz": npz.npz,
        "table": table.table,
        "image-folder": image_folder.image_folder,
        **{name: functools.partial(vision.read, name) for name in VISION},
    },
)


@dataclass(frozen=True)
class Reading:
    """What is to be read: a source's name, its reader with arguments, the stamp of its files."""

    name: str
    reader: Reader
    arguments: tuple[tuple[str, Any], ...]
    stamp: str

    @property
    def folder(self) -> str:
        """Return the name of the folder in which the arrays are kept."""
        if isinstance(self.reader, OwnReader):
            kept = [(key, repr(value)) for key, value in self.arguments if key != "root"]
            if self.reader.task != "classification":
                kept.append(("task", self.reader.task))
        else:
            dropped = ("root", "download")
            kept = [(key, str(value)) for key, value in self.arguments if key not in dropped]
        described = repr((FORMAT, self.name, kept, self.stamp))
        key = hashlib.sha256(described.encode()).hexdigest()[:16]
        return f"{self.name.replace(':', '-')}-{key}"

    def read(self) -> Source:
        """Read the source."""
        source = self.reader(**dict(self.arguments))
        names = CLASS_NAMES.get(self.name, source.class_names)
        return replace(source, name=self.name, class_names=names)


def default_root() -> Path:
    """Return where data sets are kept: $FEDIVON_DATA, or ~/.cache/fedivon-data."""
    return Path(os.environ.get("FEDIVON_DATA") or "~/.cache/fedivon-data").expanduser()


def options_of(name: str) -> set[str]:
    """Return the names of the options that a source takes, beside path, num_clients and seed."""
    if name not in SOURCES:
        return OwnReader(name, SOURCES.find(name)).options
    return set(_defaults(name)) - {*OFFERED, "task"}


def load(
    name: str,
    /,
    root: str | Path | None = None,
    *,
    path: str | Path | None = None,
    num_clients: int | None = None,
    seed: int = 0,
    task: str = "classification",
    **options: Any,
) -> Source:
    """Return the source of this name or import path.

    SOURCES has the names, and the signature of each function there its options.
    `path` is the user's file or folder (`npz`, `table`, `image-folder`); a file that is not found
    from the working folder is looked for below the root. `num_clients` and `seed` matter to
    `synthetic`, and to readers of the user's own that take them; `task` to whoever can read
    numbers in place of labels.
    """
    place = Path(root or default_root()).expanduser().absolute()
    offered = {
        "root": place,
        "path": None if path is None else _located(name, Path(path), place),
        "num_clients": num_clients,
        "seed": seed,
        "task": task,
    }
    reading = _known if name in SOURCES else _own
    return _load(reading(name, offered, options), place)


def _located(name: str, path: Path, root: Path) -> Path:
    """Return the absolute path of the user's file or folder."""
    return npz.located(path, root) if name in ("npz", "table") else path.expanduser().absolute()


def _known(name: str, offered: dict[str, Any], options: dict[str, Any]) -> Reading:
    defaults = _defaults(name)
    if unknown := sorted(set(options) - options_of(name)):
        raise no_option(f"data source {name}", unknown[0], options_of(name))
    path = offered["path"]
    if path is not None and "path" not in defaults:
        raise DataError(
            f"data source {name} takes no path; "
            "for a file of your own use npz or table, for a folder image-folder."
        )
    taken = {key: value for key, value in offered.items() if key in defaults}
    arguments = defaults | taken | options
    reader = SOURCES[name]
    files: Sequence[str | Path] = []
    if name in VISION:
        archive = offered["root"] / f"{vision.variant(name, arguments['labels'])}.npz"
        if archive.is_file():
            reader = npz.npz
            classes = vision.VISION_SETS[archive.stem].num_classes
            arguments = {"path": archive, "num_classes": classes}
            files = [archive]
        else:
            files = vision.files(name, **arguments)
    elif path is not None:
        files = image_folder.files(path) if name == "image-folder" else [path]
    return Reading(name, reader, _hashable(arguments), cache.stamp(files))


def _own(name: str, offered: dict[str, Any], options: dict[str, Any]) -> Reading:
    reader = OwnReader(name, SOURCES.find(name), task=offered["task"])
    every = {key: value for key, value in offered.items() if key != "task"}
    arguments = reader.arguments(every, options)
    return Reading(name, reader, _hashable(arguments), reader.stamp(arguments))


def _defaults(name: str) -> dict[str, Any]:
    """The keyword parameters of a known source, with their defaults."""
    parameters = inspect.signature(SOURCES[name]).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _hashable(arguments: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The arguments as sorted pairs, lists as tuples."""
    pairs = []
    for key, value in sorted(arguments.items()):
        kept = tuple(value) if isinstance(value, list) else value
        try:
            hash(kept)
        except TypeError:
            raise DataError(
                f"option {key} of a source must be a plain value or a list of them, not {kept!r}."
            ) from None
        pairs.append((key, kept))
    return tuple(pairs)


@functools.lru_cache(maxsize=16)
def _load(reading: Reading, root: Path) -> Source:
    return cache.cached(root / "arrays" / reading.folder, reading.read)
