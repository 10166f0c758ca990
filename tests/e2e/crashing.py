"""A network whose import lets the process of client 0 be killed in round 2.

Flower's processes import it from this folder.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.core.models import build


def _fit(
    self: PosteriorClient[Any, Any],
    parameters: list[np.ndarray],
    config: dict[str, Any],
    honest: Callable[..., tuple[Any, ...]] = PosteriorClient.fit,
) -> tuple[Any, ...]:
    if config["round"] == 2 and self.partition.number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(self, parameters, config)


PosteriorClient.fit = _fit  # type: ignore[method-assign]  # that is the fault


def mlp(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return build("mlp", shape, num_classes)
