"""torch's streams of random numbers: those of the CPU, and those of a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def streams_kept(device: torch.device) -> Iterator[None]:
    """Let the streams of the CPU and of this device be afterwards what they were before.

    Other devices are left alone, for on a machine with several GPUs asking each would initialise
    all of them.
    """
    others = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=others, device_type=device.type):
        yield
