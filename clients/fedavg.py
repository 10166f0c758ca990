"""Clients that learn a point: FedAvg's, and what others of its kind share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedivon_app.clients.base import PosteriorClient, Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import ClientSettings, Settings


class PointSettings(ClientSettings):
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd only")
    weight_decay: float = Field(0.0, ge=0)
    clip_norm: float | None = Field(
        None, gt=0, description="largest norm of a minibatch's gradient"
    )
    proximal: float = Field(0.0, ge=0, description="FedProx's mu: pull towards the server's point")
    optimizer_state: Literal["fresh", "kept"] = Field(
        "fresh", description="Adam's moments, from round to round"
    )


class PointClient(PosteriorClient):
    """FedAvg's client (McMahan et al. 2017): a first-order optimizer from the server's point, fresh in every round.

    With `proximal` mu it is FedProx's (Li et al. 2020): the loss gains mu/2 |theta - server|^2.
    """

    Settings = PointSettings
    penalty: Callable[[Tensor], Tensor] | None = (
        None  # gradient of what a method adds to the loss, at the flat weights
    )

    @classmethod
    def goes_on(cls, settings: Settings) -> bool:
        return super().goes_on(settings) or settings.client.optimizer_state == "kept"

    def train(self, start: Payload, task: Task) -> Posterior:
        optimizer = self.optimizer(task)
        self.descend(optimizer, task)
        if self.settings.client.optimizer_state == "kept":
            (weights,) = optimizer.param_groups[0]["params"]
            state = {f"optimizer.{name}": value for name, value in optimizer.state[weights].items()}
            task.memory.update(
                {name: value.cpu().numpy().reshape(-1) for name, value in state.items()}
            )
        return Posterior(self.flat.mean())

    def descend(self, optimizer: torch.optim.Optimizer, task: Task) -> None:
        """A step for every minibatch of the task, pulled by `proximal` towards where it begins."""
        anchor = self.flat.vector.clone() if self.settings.client.proximal else None
        for inputs, labels in task.batches():
            self.step(optimizer, inputs, labels, anchor)

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        inputs: Tensor,
        labels: Tensor,
        anchor: Tensor | None = None,
    ) -> None:
        """One step on a minibatch's loss, with what the method adds to it and `proximal`/2 |theta - anchor|^2."""
        flat = self.flat
        flat.zero_gradient()
        self.loss(inputs, labels).backward()
        if self.penalty is not None:
            flat.gradient.add_(self.penalty(flat.vector))
        if anchor is not None:
            flat.gradient.add_(flat.vector - anchor, alpha=self.settings.client.proximal)
        self.apply(optimizer)

    def apply(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer's step by the gradient that is there, clipped if the settings say so."""
        if largest := self.settings.client.clip_norm:
            torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], largest)
        optimizer.step()

    def optimizer(
        self, task: Task, weights: list[torch.nn.Parameter] | None = None
    ) -> torch.optim.Optimizer:
        """The optimizer of the settings for these weights; none: for all, with its state of last round where kept."""
        client = self.settings.client
        whole = weights is None
        weights = [self.flat.as_parameter()] if whole else weights
        shared = {"lr": task.learning_rate, "weight_decay": client.weight_decay, "fused": True}
        if client.optimizer == "adam":
            optimizer = torch.optim.Adam(weights, **shared)
        else:
            optimizer = torch.optim.SGD(weights, momentum=client.momentum, **shared)
        kept = {
            n.partition(".")[2]: v for n, v in task.memory.items() if n.startswith("optimizer.")
        }
        if whole and kept:
            optimizer.state[weights[0]] = {
                name: self._tensor(value) for name, value in kept.items()
            }
        return optimizer

    def _tensor(self, value: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(value.copy()).to(self.device)
        return tensor if len(value) > 1 else tensor.squeeze()
