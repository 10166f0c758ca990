"""The way of numbers from the host to a device.

A copy from ordinary memory lets the host wait until a GPU has come to it. From pinned memory it is
queued behind what the GPU is at, and the host goes on; torch keeps the pinned memory until the copy
is done.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SHARES_MEMORY = ("cpu", "mps")  # devices that have no use for pinned memory


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return the tensor on the device; the host does not wait for it to arrive there."""
    device = torch.device(device)
    if device.type in _SHARES_MEMORY or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
