"""Clients that keep coordinates of their own: these begin a round where the client left them, and never travel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import numpy as np
from torch import nn

from fedivon_app.clients.base import Task
from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.clients.state import recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.posterior import Posterior

Part = slice | np.ndarray  # of the flat vector, as Flat.part gives it


def replaced(posterior: Posterior, part: Part, other: Posterior) -> Posterior:
    """The posterior, with the other's mean and precision in the coordinates of the part."""
    arrays = {"mean": posterior.mean, "precision": posterior.precision}
    mixed = {name: array.copy() for name, array in arrays.items() if array is not None}
    for name, array in mixed.items():
        array[part] = getattr(other, name)[part]
    return replace(posterior, **mixed)


@contextmanager
def alone(flat: Flat, part: Part) -> Iterator[list[nn.Parameter]]:
    """The parameters of the part, and gradients for no others; an optimizer of these alone leaves the rest as it is."""
    inside = np.zeros(len(flat), bool)
    inside[part] = True
    learning = {
        name: weights for name, weights in flat.module.named_parameters() if weights.requires_grad
    }
    frozen = [weights for name, weights in learning.items() if not inside[flat.slices[name]].all()]
    try:
        for weights in frozen:
            weights.requires_grad_(False)
        yield [weights for weights in learning.values() if weights.requires_grad]
    finally:
        for weights in frozen:
            weights.requires_grad_(True)


class OwnPartSettings(PointSettings):
    proximal: Literal[0] = 0  # what training starts from is not the server's point


class OwnPartClient(PointClient):
    """A point of which a part is the client's own, and the rest the server's.

    A round begins at the server's point with the own part of the client's PM, in its first round the server's. The PM
    is the whole point after training; what is sent has the server's values, as they came, in place of the own part.
    """

    Settings = OwnPartSettings
    personalises = True
    remembers = True
    own: Part

    def train(self, start: Payload, task: Task) -> Posterior:
        server = start.posterior
        kept = recall_personal(task.memory)
        if kept is not None:
            self.flat.load(replaced(server, self.own, kept.posterior).mean)
        point = self.learn(start, task)
        self.personal = Payload(point, self.flat.buffers)
        return replaced(point, self.own, server)

    def learn(self, start: Payload, task: Task) -> Posterior:
        """The point after training from the network's weights."""
        return super().train(start, task)
