"""What a trained model says of pictures and tables in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedivon_app.core.errors import DataError
from fedivon_app.core.text import one_line
from fedivon_app.datasets.npz import UNREADABLE, checked_inputs
from fedivon_app.datasets.picture_file import SUFFIXES, is_picture, open_picture
from fedivon_app.datasets.resize import fit, resize
from fedivon_app.datasets.table_file import TableFile, is_table
from fedivon_app.datasets.table_format import TableFormat
from fedivon_app.runs.trained_model import Trained

BATCH_BYTES = 2**28  # of inputs that are predicted at once
ARRAYS = ("x", "x_test")  # the keys of an .npz file, the first that is there


@dataclass(frozen=True)
class Prediction:
    """What the model says of the input of this name, or why it cannot be read."""

    name: str
    said: dict[str, Any]
    error: DataError | None = None


def predictions(
    trained: Trained,
    paths: Iterable[Path],
    samples: int,
    confidence: float = 0.0,
    threshold: float | None = None,
) -> Iterator[Prediction]:
    """Yield what the model says of every picture in these files and folders; see `Trained.say`.

    The rows of an .npz file are named `file.npz[0]` and on, and so are those of a table. Files are
    read until BATCH_BYTES of
    inputs are there.
    """
    names: list[str] = []
    waiting: list[Tensor] = []

    def answers() -> Iterator[Prediction]:
        said = trained.say(torch.cat(waiting), samples, confidence, threshold)
        yield from (Prediction(name, one) for name, one in zip(names, said, strict=True))

    for path in paths:
        for file in _files(path):
            try:
                rows = rows_of(trained, file)
            except DataError as error:
                yield Prediction(str(file), {}, error)
                continue
            several = file.suffix.lower() == ".npz" or is_table(file)
            numbered = [f"{file}[{row}]" for row in range(len(rows))]
            names += numbered if several else [str(file)]
            waiting.append(rows)
            if sum(one.nbytes for one in waiting) > BATCH_BYTES:
                yield from answers()
                names = []
                waiting = []
    if waiting:
        yield from answers()


def _files(path: Path) -> list[Path]:
    """Return the file, or the pictures in a folder at any depth; itself where there are none."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if is_picture(file)) or [path]


def rows_of(trained: Trained, file: Path) -> Tensor:
    """Return what is in a file as inputs of the network, read as the model's own data were."""
    values = trained.settings.data.options.get("values")
    return trained.inputs(read_rows(file, trained.shape, trained.table, values))


def read_rows(
    file: Path,
    shape: tuple[int, ...],
    table: TableFormat | None = None,
    values: Sequence[float] | None = None,
) -> np.ndarray:
    """Return what is in a picture, an .npz file or a table, as rows that fit inputs of this shape.

    `table` is the format of the tables that the model was trained on, `values` the range of values
    of DICOM pictures.
    """
    if file.is_dir():
        raise DataError(f"{file}: there is no picture in it ({', '.join(sorted(SUFFIXES))})")
    if file.suffix.lower() == ".npz":
        return fit(str(file), _read_npz(file), shape)
    if is_table(file) and table is not None:
        return table.inputs(TableFile(file))
    if len(shape) == 1:
        kinds = "a .csv, .parquet or .feather file" if table else "an .npz file with an array x"
        raise DataError(f"{file}: the model takes tables of {shape[0]} numbers: give {kinds}")
    if is_table(file):
        size = " x ".join(str(side) for side in shape)
        raise DataError(f"{file} is a table, but the model takes pictures ({size})")
    picture = open_picture(file, values)
    try:
        return resize(picture, shape)[None]
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


def _read_npz(file: Path) -> np.ndarray:
    try:
        with np.load(file, allow_pickle=False) as archive:
            key = next((key for key in ARRAYS if key in archive.files), None)
            if key is None:
                found = ", ".join(archive.files) or "nothing"
                raise DataError(f"{file}: it has no array x or x_test (found: {found})")
            return checked_inputs(str(file), key, archive[key])
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file") from None
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{file}: not a readable .npz file ({one_line(error)})") from None
