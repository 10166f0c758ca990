"""Clients that learn a point: FedAvg's, and what others of its kind share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from clients.base import PosteriorClient, Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import ClientSettings


class PointSettings(ClientSettings):
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd only")
    weight_decay: float = Field(0.0, ge=0)
    clip_norm: float | None = Field(None, gt=0, description="largest norm of a minibatch's gradient")
    proximal: float = Field(0.0, ge=0, description="FedProx's mu: pull towards the server's point")
    optimizer_state: Literal["fresh", "kept"] = Field("fresh", description="Adam's moments, from round to round")


class PointClient(PosteriorClient):
    """FedAvg's client (McMahan et al. 2017): a first-order optimizer from the server's point, fresh in every round.

    With `proximal` mu it is FedProx's (Li et al. 2020): the loss gains mu/2 |theta - server|^2.
    """

    Settings = PointSettings
    penalty: Callable[[Tensor], Tensor] | None = None  # gradient of what a method adds to the loss, at the flat weights

    @property
    def remembers(self) -> bool:
        return self.settings.client.optimizer_state == "kept"

    def train(self, start: Payload, task: Task) -> Posterior:
        flat, client = self.flat, self.settings.client
        optimizer, weights = self.optimizer(task)
        pull = client.proximal
        anchor = flat.vector.clone() if pull else None
        for inputs, labels in task.batches():
            flat.zero_gradient()
            self.loss(inputs, labels).backward()
            if self.penalty is not None:
                flat.gradient.add_(self.penalty(flat.vector))
            if pull:
                flat.gradient.add_(flat.vector - anchor, alpha=pull)
            if client.clip_norm:
                torch.nn.utils.clip_grad_norm_(weights, client.clip_norm)
            optimizer.step()
        if client.optimizer_state == "kept":
            state = {f"optimizer.{name}": value for name, value in optimizer.state[weights].items()}
            task.memory.update({name: value.cpu().numpy().reshape(-1) for name, value in state.items()})
        return Posterior(flat.mean())

    def optimizer(self, task: Task) -> tuple[torch.optim.Optimizer, torch.nn.Parameter]:
        """The optimizer of the settings, with its state of the round before if that is kept, and what it moves."""
        client, weights = self.settings.client, self.flat.as_parameter()
        shared = {"lr": task.learning_rate, "weight_decay": client.weight_decay, "fused": True}
        if client.optimizer == "adam":
            optimizer = torch.optim.Adam([weights], **shared)
        else:
            optimizer = torch.optim.SGD([weights], momentum=client.momentum, **shared)
        if kept := {n.partition(".")[2]: v for n, v in task.memory.items() if n.startswith("optimizer.")}:
            optimizer.state[weights] = {name: self._tensor(value) for name, value in kept.items()}
        return optimizer, weights

    def _tensor(self, value: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(value.copy()).to(self.device)
        return tensor if len(value) > 1 else tensor.squeeze()
