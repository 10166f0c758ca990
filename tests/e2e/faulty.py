"""A network whose import makes some clients misbehave; Flower's processes import it from this folder.

FAULTS says by partition what happens to a reply.
"""

import time

import numpy as np
from torch import nn

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.core.models import build

FAULTS = {  # partition: what it does to the arrays by name, in round 2
    1: lambda arrays: (_ for _ in ()).throw(RuntimeError("the disk of this site is full")),
    2: lambda arrays: arrays | {"mean": np.full_like(arrays["mean"], np.nan)},
    3: lambda arrays: arrays | {"mean": arrays["mean"][:-7], "precision": arrays["precision"][:-7]},
    4: lambda arrays: arrays | {"precision": -arrays["precision"]},
    5: lambda arrays: {name: np.ones(11, np.float32) for name in arrays},
    6: lambda arrays: (time.sleep(25), arrays)[1],
}


def _fit(self, parameters, config, honest=PosteriorClient.fit):
    reply, *rest = honest(self, parameters, config)
    if config["round"] == 2 and (fault := FAULTS.get(self.partition.number)):
        reply = list(fault(dict(zip(config["keys"], reply, strict=True))).values())
    return reply, *rest


PosteriorClient.fit = _fit


def mlp(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return build("mlp", shape, num_classes)
