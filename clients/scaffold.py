"""SCAFFOLD's client."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.clients.task import Carries, Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import MergeSettings


class ScaffoldSettings(PointSettings):
    """A point's, with plain steps: controls are what those were made of."""

    optimizer: Literal["sgd"] = "sgd"
    momentum: Literal[0] = 0


class ScaffoldClient(PointClient[ScaffoldSettings, MergeSettings]):
    """SCAFFOLD's client (Karimireddy et al. 2020, Algorithm 1, option II).

    Gradients are corrected by the server's control c less its own c_k; then
    c_k <- c_k - c + (server - own) / (steps learning_rate). What c_k gained is sent in c's place.
    """

    settings_type: ClassVar[type[ClientSettings]] = ScaffoldSettings
    carries = Carries.TRAINING
    coupled = frozenset({"control"})

    def train(self, start: Payload, task: Task) -> Learned:
        server = start.posterior.mean
        control = start.extras["control"]
        own = task.memory.get("control", np.zeros(len(self.flat)))
        correction = self.flat.checked((control - own).astype(np.float32))
        learned = self.learn(task, penalty=lambda theta: correction)
        way = server.astype(np.float64) - learned.posterior.mean
        gain = way / (task.losses.count * task.learning_rate) - control
        return replace(
            learned,
            extras={"control": gain},
            follow=lambda sent: {"control": own + sent.extras["control"]},
        )
