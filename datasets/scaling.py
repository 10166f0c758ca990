"""Pixels as a network takes them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedivon_app.core.errors import DataError
from fedivon_app.core.standardise import Standard
from fedivon_app.core.text import did_you_mean

SCALINGS = ("raw", "unit", "signed", "tokens")


def inputs(x: np.ndarray, scaling: str, standard: Standard | None = None) -> Tensor:
    """Return inputs of a network, float32: (N, C, H, W) for pictures, (N, D) for tables.

    Bytes are scaled: `raw` 0 to 255, `unit` x/255, `signed` (x/255 - 0.5)/0.5. Floats are passed as
    they are, or standardised where means and deviations are given. `tokens` are whole numbers, and
    stay so, int64, for a network that begins with an embedding.
    """
    if scaling not in SCALINGS:
        raise DataError(f"there is no scaling {scaling!r}: {did_you_mean(scaling, SCALINGS)}")
    if standard is not None and standard.mean:
        return torch.from_numpy(standard.apply(x))
    if scaling == "tokens":
        return _tokens(x)
    pictures = x[..., np.newaxis] if x.ndim == 3 else x
    channels_first = np.moveaxis(pictures, -1, 1)
    tensor = torch.from_numpy(np.array(channels_first, dtype=np.float32, order="C"))
    if x.dtype == np.uint8 and scaling != "raw":
        tensor.div_(255)
        if scaling == "signed":
            tensor.sub_(0.5).div_(0.5)
    return tensor


def _tokens(x: np.ndarray) -> Tensor:
    whole = np.asarray(x).astype(np.int64)
    if not np.array_equal(whole, x) or (whole < 0).any():
        raise DataError("data.scaling is tokens, and inputs are not whole numbers from 0 on.")
    return torch.from_numpy(whole)
