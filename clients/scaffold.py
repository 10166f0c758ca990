"""SCAFFOLD's client."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedivon_app.clients.base import Task
from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior


class ScaffoldSettings(PointSettings):
    optimizer: Literal["sgd"] = "sgd"
    momentum: Literal[0] = 0  # controls are what plain steps were made of


class ScaffoldClient(PointClient):
    """SCAFFOLD's client (Karimireddy et al. 2020, Algorithm 1, option II).

    Gradients are corrected by the server's control c less its own c_k; then c_k <- c_k - c + (server - own) / (steps
    learning_rate). What c_k gained is sent in c's place.
    """

    Settings = ScaffoldSettings
    remembers = True

    def train(self, start: Payload, task: Task) -> Posterior:
        server = start.posterior.mean
        control = start.extras["control"]
        own = task.memory.get("control", np.zeros(len(self.flat)))
        correction = self.flat.checked((control - own).astype(np.float32))
        self.penalty = lambda theta: correction
        posterior = super().train(start, task)
        gain = (server.astype(np.float64) - posterior.mean) / (
            self.steps * task.learning_rate
        ) - control
        task.memory["control"] = own + gain
        task.extras["control"] = gain.astype(np.float32)
        return posterior
