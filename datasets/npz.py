"""The user's own data: one `.npz` file with its own train and test part.

Keys: x_train, y_train, x_test, y_test; optional, in pairs: subclass_train and subclass_test (fine
labels below y), owner_train and owner_test (client of each row). Pictures are (N, H, W) or
(N, H, W, C), tables (N, D).
"""

import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.core.text import one_line
from fedivon_app.datasets.base import FIELDS, SUBSETS, Source, whole_number

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("subclass", "owner")
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


def npz(
    *,
    path: str | Path | None = None,
    num_classes: int | None = None,
    task: str = "classification",
) -> Source:
    """Read and check a file; `num_classes` is by default the largest label + 1."""
    if path is None:
        raise DataError(
            "npz: no file given; set path to an .npz file with x_train, y_train, x_test and y_test."
        )
    if num_classes is not None:
        whole_number(num_classes, "npz: num_classes", 1)
    return checked_source("npz", str(path), read_arrays(Path(path)), num_classes, task=task)


def located(path: Path, root: Path) -> Path:
    """Return where the file of this name is: in the working folder or, if not there, below `root`.

    The person, the server and the nodes may each have a working folder of their own. A name is
    therefore refused if it stands for one file here and for another below the root, which somebody
    else would find.
    """
    here = path.expanduser()
    if here.is_absolute():
        return here
    here = here.absolute()
    below = root / path
    if not below.exists():
        if here.exists():
            return here
        raise DataError(
            f"{path}: there is no such file in the working folder {Path.cwd()}, "
            f"nor below the data root {root}."
        )
    if here.exists() and not here.samefile(below):
        raise DataError(
            f"{path}: this may be {here} or, below the data root, {below}; "
            "name the one that is meant by its absolute path."
        )
    return below


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file that the format knows; nothing is ever unpickled."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file.")
    try:
        archive = np.load(path, allow_pickle=False)
    except UNREADABLE as error:
        raise DataError(f"{path}: not a readable .npz file ({_told(error)}).") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise DataError(
            f"{path}: holds one bare array; save it with numpy.savez(file, x_train=..., ...)."
        )
    with archive:
        check_keys(str(path), archive.files)
        arrays = {}
        for key in FIELDS:
            if key not in archive.files:
                continue
            try:
                arrays[key] = archive[key]
            except UNREADABLE as error:
                raise DataError(f"{path}: key {key!r} cannot be read ({_told(error)}).") from error
    return arrays


def check_keys(where: str, keys: Collection[str]) -> None:
    """Complain, beginning with `where`, if a key of the format is missing."""
    missing = [key for key in REQUIRED if key not in keys]
    if missing:
        found = ", ".join(keys) or "nothing"
        raise DataError(
            f"{where}: no key {missing[0]!r}; needed are {', '.join(REQUIRED)} (found: {found})."
        )
    for kind in OPTIONAL:
        held = [f"{kind}_{subset}" in keys for subset in SUBSETS]
        if any(held) and not all(held):
            raise DataError(
                f"{where}: {kind}_train and {kind}_test belong together; one of them is missing."
            )


def checked_source(
    name: str,
    where: str,
    raw: Mapping[str, np.ndarray],
    num_classes: int | None,
    task: str = "classification",
) -> Source:
    """Return a Source of the arrays if they are sound; `where` begins every complaint."""
    arrays = {}
    for subset in SUBSETS:
        x = checked_inputs(where, f"x_{subset}", raw[f"x_{subset}"])
        arrays[f"x_{subset}"] = x
        for kind in ("y", *OPTIONAL):
            if (key := f"{kind}_{subset}") not in raw:
                continue
            if kind == "y" and task == "regression":
                arrays[key] = checked_targets(where, key, raw[key], length=len(x))
            else:
                limit = num_classes if kind == "y" else None
                arrays[key] = checked_labels(where, key, raw[key], length=len(x), num_classes=limit)
    train = arrays["x_train"]
    test = arrays["x_test"]
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise DataError(
            f"{where}: x_train and x_test differ in kind: inputs of shape "
            f"{train.shape[1:]} ({train.dtype}) and {test.shape[1:]} ({test.dtype})."
        )
    if task == "regression":
        return Source.of(name, arrays, num_classes=0)
    largest = max(int(arrays["y_train"].max()), int(arrays["y_test"].max()))
    return Source.of(name, arrays, largest + 1 if num_classes is None else num_classes)


def checked_inputs(where: str, key: str, x: np.ndarray) -> np.ndarray:
    """Return inputs in the format of a source, or complain about them.

    uint8 stays; floats become float32; other integers become uint8 (pictures) or float32 (tables).
    """
    if x.ndim not in (2, 3, 4):
        raise DataError(
            f"{where}: {key} has {x.ndim} dimensions; (N, D), (N, H, W) or (N, H, W, C) is needed."
        )
    if x.size == 0:
        raise DataError(f"{where}: {key} is empty (shape {x.shape}).")
    if x.ndim == 4 and x.shape[3] > 4 and x.shape[1] <= 4:
        raise DataError(
            f"{where}: {key} has shape {x.shape}; the channels come last, (N, H, W, C)."
        )
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind == "f":
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise DataError(
                f"{where}: {key} holds values that are not finite in float32 "
                "(NaN, infinity or too large)."
            )
        return x
    if x.dtype.kind not in "iub":
        raise DataError(f"{where}: {key} holds {x.dtype}; numbers are needed.")
    if x.ndim == 2:
        return x.astype(np.float32)
    if x.min() < 0 or x.max() > 255:
        raise DataError(
            f"{where}: {key} holds integers from {x.min()} to {x.max()}; "
            "pixels are 0 to 255 (or floats)."
        )
    return x.astype(np.uint8)


def checked_targets(where: str, key: str, y: np.ndarray, *, length: int) -> np.ndarray:
    """Return the numbers that are to be predicted as float32, or complain about them."""
    if y.shape != (length,):
        raise DataError(
            f"{where}: {key} has shape {y.shape}; one number a row, shape ({length},), is needed."
        )
    if y.dtype.kind not in "fiu" or not np.isfinite(y).all():
        raise DataError(f"{where}: {key} must hold finite numbers, not {y.dtype} or NaN.")
    return y.astype(np.float32)


def checked_labels(
    where: str, key: str, y: np.ndarray, *, length: int, num_classes: int | None
) -> np.ndarray:
    """Return labels as int64, or complain about them.

    There must be one whole number for each of `length` rows, of at least 0 and, if `num_classes` is
    given, below it.
    """
    if y.ndim != 1:
        raise DataError(
            f"{where}: {key} has shape {y.shape}; one label a row, shape (N,), is needed."
        )
    if len(y) != length:
        raise DataError(f"{where}: {key} has {len(y)} rows, but x has {length}.")
    if y.dtype.kind not in "iu":
        told = "; task=regression predicts numbers" if y.dtype.kind == "f" else ""
        raise DataError(f"{where}: {key} holds {y.dtype}; labels are integers{told}.")
    if y.min() < 0:
        raise DataError(f"{where}: {key} holds the label {y.min()}; labels begin at 0.")
    if num_classes is not None and y.max() >= num_classes:
        raise DataError(
            f"{where}: {key} holds the label {y.max()}, out of range for {num_classes} classes."
        )
    return y.astype(np.int64)


def _told(error: Exception) -> str:
    return one_line(error).rstrip(".") or type(error).__name__
