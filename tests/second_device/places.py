"""Where networks lie in these checks: on the CPU, or on the second device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from fedivon_app.clients import base
from fedivon_app.runs import trained_model
from fedivon_app.server import setup
from tests.second_device import device

HERE = torch.device("cpu")
THERE = torch.device(device.NAME, 0)
CHOOSERS = (base, setup, trained_model)  # the modules that pick a device


@contextmanager
def placed(where: torch.device) -> Iterator[None]:
    """Let every network that is made inside the block lie on this device."""
    patches = [mock.patch.object(module, "pick_device", lambda name: where) for module in CHOOSERS]
    with patches[0], patches[1], patches[2]:
        yield


def on_both(compute: Callable[[torch.device], Any]) -> tuple[Any, Any]:
    """Return what a computation gives on the CPU and on the second device, from one seed."""
    found = []
    for where in (HERE, THERE):
        torch.manual_seed(0)
        with placed(where):
            found.append(compute(where))
    return found[0], found[1]
