"""Clients that learn a point: FedAvg's."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from clients.base import PosteriorClient, Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import ClientSettings


class PointSettings(ClientSettings):
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd only")
    weight_decay: float = Field(0.0, ge=0)
    clip_norm: float | None = Field(None, gt=0, description="largest norm of a minibatch's gradient")


class PointClient(PosteriorClient):
    """FedAvg's client (McMahan et al. 2017): a first-order optimizer from the server's point, fresh in every round."""

    Settings = PointSettings

    def train(self, start: Payload, task: Task) -> Posterior:
        optimizer = self.optimizer(task)
        for inputs, labels in task.batches():
            self.flat.zero_gradient()
            self.loss(inputs, labels).backward()
            if self.settings.client.clip_norm:
                torch.nn.utils.clip_grad_norm_(self.flat.module.parameters(), self.settings.client.clip_norm)
            optimizer.step()
        return Posterior(self.flat.mean())

    def optimizer(self, task: Task) -> torch.optim.Optimizer:
        client, parameters = self.settings.client, self.flat.module.parameters()
        shared = {"lr": task.learning_rate, "weight_decay": client.weight_decay, "fused": True}
        if client.optimizer == "adam":
            return torch.optim.Adam(parameters, **shared)
        return torch.optim.SGD(parameters, momentum=client.momentum, **shared)
