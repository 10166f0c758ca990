"""Pictures brought to a model's size and channels, the same way wherever they come from: by Pillow, bilinear."""

from typing import Any

import numpy as np

from fedivon_app.datasets.base import DataError

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's, by the number of channels


def fit(where: str, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Rows of a source for a model with inputs of `shape`: bytes of pictures are resized, all else must fit."""
    from PIL import Image

    found = (*rows.shape[1:], 1) if rows.ndim == 3 else rows.shape[1:]
    if found == shape:
        return rows
    if len(shape) == 3 and rows.dtype == np.uint8 and rows.ndim > 2 and found[2] in MODES:
        pictures = rows[..., 0] if rows.ndim == 4 and found[2] == 1 else rows
        return np.stack([resize(Image.fromarray(picture), shape) for picture in pictures])
    expected, given = (" x ".join(map(str, one)) for one in (shape, found))
    raise DataError(
        f"{where}: its inputs are {given} ({rows.dtype}), but the model takes {expected}"
    )


def resize(image: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A Pillow image in the model's channels and size, (H, W, C)."""
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
