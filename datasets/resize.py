"""Pictures brought to a model's size and channels, always the same way: by Pillow, bilinear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedivon_app.core.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's, by the number of channels


def fit(where: str, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return rows of a source for a model with inputs of `shape`.

    Bytes of pictures are resized; all else must fit, or the complaint begins with `where`.
    """
    from PIL import Image

    found = (*rows.shape[1:], 1) if rows.ndim == 3 else rows.shape[1:]
    if found == shape:
        return rows
    if len(shape) == 3 and rows.dtype == np.uint8 and rows.ndim > 2 and found[2] in MODES:
        pictures = rows[..., 0] if rows.ndim == 4 and found[2] == 1 else rows
        return np.stack([resize(Image.fromarray(picture), shape) for picture in pictures])
    raise DataError(
        f"{where}: its inputs are {_by(found)} ({rows.dtype}), but the model takes {_by(shape)}"
    )


def resize(image: Image.Image, shape: tuple[int, ...]) -> np.ndarray:
    """Return a Pillow image in the model's channels and size, (H, W, C)."""
    from PIL import Image

    height, width, channels = shape
    if channels not in MODES:
        raise DataError(
            f"a picture has no {channels} channels: give the model's inputs in an .npz file"
        )
    converted = image.convert(MODES[channels])
    if converted.size != (width, height):
        converted = converted.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(converted).reshape(shape)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
