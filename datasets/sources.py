"""Data sets by name.

`load` reads a source once, keeps it below <root>/arrays as memory-mapped `.npy` files and returns the same object for
the same arguments. A known data set is taken from <root>/<name>.npz if that file exists (CIFAR-100 with superclasses
from <root>/cifar100-superclass.npz), else from torchvision's files below <root>.
"""

import functools
import hashlib
import inspect
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedivon_app.datasets import builtin, cache, image_folder, npz, vision
from fedivon_app.datasets.base import DataError, Source, suggestion

if TYPE_CHECKING:
    import torch

__all__ = ["SOURCES", "DataError", "Source", "default_root", "inputs", "load", "options_of"]

FORMAT = 2  # of the stored arrays; part of their key
SCALINGS = ("raw", "unit", "signed")
COMMON = {
    "root",
    "path",
    "num_clients",
    "seed",
}  # offered to every source; those that it takes are used
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

SOURCES: dict[str, Callable[..., Source]] = {
    "digits": builtin.digits,
    "synthetic": builtin.synthetic,
    "npz": npz.npz,
    "image-folder": image_folder.image_folder,
    **{name: functools.partial(vision.read, name) for name in VISION},
}


def default_root() -> Path:
    """Where data sets are kept: $FEDIVON_DATA, or ~/.cache/fedivon-data."""
    return Path(os.environ.get("FEDIVON_DATA") or "~/.cache/fedivon-data").expanduser()


def options_of(name: str) -> set[str]:
    """The options that a source takes, beside path, num_clients and seed."""
    return set(_parameters(name)) - COMMON


def load(
    name: str,
    root: str | Path | None = None,
    *,
    path: str | Path | None = None,
    num_clients: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Source:
    """The source of this name; see SOURCES, and the function of each for its options.

    `path` is the user's file or folder (`npz`, `image-folder`); `num_clients` and `seed` matter to `synthetic` alone.
    """
    defaults = _parameters(name)
    if unknown := sorted(set(options) - options_of(name)):
        raise DataError(
            f"source {name} has no option {unknown[0]!r}; {suggestion(unknown[0], options_of(name))}"
        )
    if path is not None and "path" not in defaults:
        raise DataError(
            f"source {name} takes no path; for a file of your own use npz, for a folder image-folder."
        )
    place = Path(root or default_root()).expanduser().absolute()
    where = None if path is None else Path(path).expanduser().absolute()
    offered = {"root": place, "path": where, "num_clients": num_clients, "seed": seed}
    arguments = (
        defaults | {key: value for key, value in offered.items() if key in defaults} | options
    )
    reader = SOURCES[name]
    files = []
    if name in VISION:
        archive = place / f"{vision.variant(name, arguments['labels'])}.npz"
        if archive.is_file():
            classes = vision.VISION_SETS[archive.stem].num_classes
            reader = npz.npz
            arguments = {"path": archive, "num_classes": classes}
            files = [archive]
        else:
            files = vision.files(name, **arguments)
    elif where is not None:
        files = image_folder.files(where) if name == "image-folder" else [where]
    return _load(
        name, reader, place, tuple(sorted(map(_hashable, arguments.items()))), _stamp(files)
    )


def inputs(x: np.ndarray, scaling: str) -> "torch.Tensor":
    """Inputs of a network, float32: (N, C, H, W) for pictures, (N, D) for tables.

    Scaling of bytes: `raw` 0 to 255, `unit` x/255, `signed` (x/255 - 0.5)/0.5. Floats are passed as they are.
    """
    import torch

    if scaling not in SCALINGS:
        raise DataError(f"there is no scaling {scaling!r}; {suggestion(scaling, SCALINGS)}")
    pictures = x[..., np.newaxis] if x.ndim == 3 else x
    channels_first = np.moveaxis(pictures, -1, 1)
    tensor = torch.from_numpy(np.array(channels_first, dtype=np.float32, order="C"))
    if x.dtype == np.uint8 and scaling != "raw":
        tensor.div_(255)
        if scaling == "signed":
            tensor.sub_(0.5).div_(0.5)
    return tensor


def _parameters(name: str) -> dict[str, Any]:
    """The keyword parameters of a source, with their defaults."""
    if name not in SOURCES:
        raise DataError(f"there is no source {name!r}; {suggestion(name, SOURCES)}")
    parameters = inspect.signature(SOURCES[name]).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _hashable(item: tuple[str, Any]) -> tuple[str, Any]:
    key, value = item
    value = tuple(value) if isinstance(value, list) else value
    try:
        hash(value)
    except TypeError:
        raise DataError(
            f"option {key} of a source must be a plain value or a list of them, not {value!r}."
        ) from None
    return key, value


def _stamp(files: Iterable[str | Path]) -> str:
    """A digest of the files' names, sizes and times of change, so that a changed file is read anew."""
    digest = hashlib.sha256()
    for file in files:
        with suppress(OSError):  # a missing file is the reader's to complain of
            status = os.stat(file)
            digest.update(
                f"{file} {status.st_size} {status.st_mtime_ns}\n".encode(errors="surrogateescape")
            )
    return digest.hexdigest()


@functools.lru_cache(maxsize=16)
def _load(
    name: str, reader: Callable, root: Path, arguments: tuple[tuple[str, Any], ...], stamp: str
) -> Source:
    kept = [(key, str(value)) for key, value in arguments if key not in ("root", "download")]
    key = hashlib.sha256(repr((FORMAT, name, kept, stamp)).encode()).hexdigest()[:16]
    names = {"class_names": CLASS_NAMES[name]} if name in CLASS_NAMES else {}
    build = lambda: replace(reader(**dict(arguments)), name=name, **names)  # noqa: E731
    return cache.cached(root / "arrays" / f"{name}-{key}", build)
