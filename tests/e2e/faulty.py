"""A network whose import makes some clients misbehave in round 2.

Flower's processes import it from this folder. FAULTS says by partition what happens to a reply.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.core.models import build

Arrays = dict[str, np.ndarray]  # of a reply, by name


def full_disk(arrays: Arrays) -> Arrays:
    raise RuntimeError("the disk of this site is full")


def not_a_number(arrays: Arrays) -> Arrays:
    return arrays | {"mean": np.full_like(arrays["mean"], np.nan)}


def too_short(arrays: Arrays) -> Arrays:
    return {name: array[:-7] for name, array in arrays.items()}


def negative(arrays: Arrays) -> Arrays:
    return arrays | {"precision": -arrays["precision"]}


def of_another_model(arrays: Arrays) -> Arrays:
    return {name: np.ones(11, np.float32) for name in arrays}


def slow(arrays: Arrays) -> Arrays:
    time.sleep(25)
    return arrays


FAULTS = {1: full_disk, 2: not_a_number, 3: too_short, 4: negative, 5: of_another_model, 6: slow}


def _fit(
    self: PosteriorClient[Any, Any],
    parameters: list[np.ndarray],
    config: dict[str, Any],
    honest: Callable[..., tuple[Any, ...]] = PosteriorClient.fit,
) -> tuple[Any, ...]:
    reply, *rest = honest(self, parameters, config)
    if config["round"] == 2 and (fault := FAULTS.get(self.partition.number)):
        reply = list(fault(dict(zip(config["keys"], reply, strict=True))).values())
    return reply, *rest


PosteriorClient.fit = _fit  # type: ignore[method-assign]  # that is the fault


def mlp(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return build("mlp", shape, num_classes)
