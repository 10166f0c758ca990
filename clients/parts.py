"""Clients that keep coordinates of their own, which begin where the client left them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field
from torch import nn

from fedivon_app.clients.base import M
from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.clients.task import Carries, Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat, Part
from fedivon_app.core.posterior import Posterior


def replaced(posterior: Posterior, part: Part, other: Posterior) -> Posterior:
    """Return the posterior with the other's mean and precision in the coordinates of the part."""
    mean = posterior.mean.copy()
    mean[part] = other.mean[part]
    if posterior.precision is None:
        return replace(posterior, mean=mean)
    precision = posterior.precision.copy()
    precision[part] = other.known_precision[part]
    return replace(posterior, mean=mean, precision=precision)


@contextmanager
def alone(flat: Flat, part: Part) -> Iterator[list[nn.Parameter]]:
    """Give the parameters of the part, and gradients to no others.

    An optimizer of these alone leaves the rest as it is.
    """
    inside = np.zeros(len(flat), bool)
    inside[part] = True
    learning = {
        name: weights for name, weights in flat.module.named_parameters() if weights.requires_grad
    }
    frozen = [w for name, w in learning.items() if not inside[flat.slices[name]].all()]
    try:
        for weights in frozen:
            weights.requires_grad_(False)
        yield [weights for weights in learning.values() if weights.requires_grad]
    finally:
        for weights in frozen:
            weights.requires_grad_(True)


class OwnPartSettings(PointSettings):
    """A point's, without the pull: what training starts from is not the server's point."""

    proximal: Literal[0] = Field(
        0, description="none here: training does not start at the server's"
    )


OwnPart = TypeVar("OwnPart", bound=OwnPartSettings)


class OwnPartClient(PointClient[OwnPart, M]):
    """A point of which a part is the client's own, and the rest the server's.

    A round begins at the server's point with the own part of the client's PM, in its first round
    the server's. The PM is the whole point after training; what is sent has the server's values,
    as they came, in place of the own part.
    """

    settings_type: ClassVar[type[ClientSettings]] = OwnPartSettings
    carries = Carries.MODEL | Carries.TRAINING

    @property
    @abstractmethod
    def own(self) -> Part:
        """Return where the client's own part lies in the flat vector."""

    def train(self, start: Payload, task: Task) -> Learned:
        server = start.posterior
        if (kept := task.personal) is not None:
            self.flat.load(replaced(server, self.own, kept.posterior).mean)
        learned = self.learn(task)
        return replace(
            learned,
            posterior=replaced(learned.posterior, self.own, server),
            personal=Payload(learned.posterior, self.flat.buffers),
        )
