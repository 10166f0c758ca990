"""FedAvg's client, which learns a point, and what others of its kind share."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from fedivon_app.clients.base import M, PosteriorClient
from fedivon_app.clients.task import Carries, Learned, SoFar, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.optimizers import SGD, Adam
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import even_range, log_range, search
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.transfer import sent

Penalty = Callable[
    [Tensor], Tensor
]  # the gradient of what a method adds to the loss, at the weights
STATE = "optimizer."  # stands before the names of the optimizer's arrays in a client's memory


class PointSettings(ClientSettings):
    """What every client has that learns a point."""

    optimizer: Literal["adam", "sgd"] = Field("adam", description="of the client's point")
    learning_rate: float = Field(
        0.1,
        gt=0,
        description="in the first round",
        json_schema_extra=search(log_range(1e-4, 0.03, optimizer="adam"), log_range(0.003, 1.0)),
    )
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="sgd only",
        json_schema_extra=search(even_range(0.0, 0.95, optimizer="sgd")),
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="pull of the weights towards 0",
        json_schema_extra=search(log_range(1e-6, 0.01)),
    )
    clip_norm: float | None = Field(
        None, gt=0, description="largest norm of a minibatch's gradient"
    )
    proximal: float = Field(
        0.0,
        ge=0,
        description="FedProx's mu: pull towards the server's point",
        json_schema_extra=search(log_range(1e-4, 1.0)),
    )
    optimizer_state: Literal["fresh", "kept"] = Field(
        "fresh", description="Adam's moments, from round to round"
    )

    def moved_by(self, posterior: Posterior) -> np.ndarray | None:
        """Return how far a gradient of 1 moves each weight in the end, at a rate of 1."""
        if self.optimizer == "adam":
            return None
        return np.full_like(posterior.mean, 1 / (1 - self.momentum))


P = TypeVar("P", bound=PointSettings)


class PointClient(PosteriorClient[P, M]):
    """FedAvg's client (McMahan et al. 2017): a first-order optimizer from the server's point.

    It is fresh in every round unless the settings keep it. With `proximal` mu it is FedProx's (Li
    et al. 2020): the loss gains mu/2 |theta - server|^2.
    """

    settings_type: ClassVar[type[ClientSettings]] = PointSettings

    @classmethod
    def carried(cls, settings: AnySettings) -> Carries:
        """Return what clients carry; an optimizer that is kept is a part of it."""
        client = settings.client
        keeps = isinstance(client, PointSettings) and client.optimizer_state == "kept"
        return super().carried(settings) | (Carries.TRAINING if keeps else Carries.NOTHING)

    def train(self, start: Payload, task: Task) -> Learned:
        return self.learn(task)

    def learn(
        self, task: Task, penalty: Penalty | None = None, so_far: SoFar | None = None
    ) -> Learned:
        """Return the point after training from the network's weights.

        `so_far` is for methods whose posterior is more than the point; see `Task.batches`.
        """
        optimizer = self.optimizer(task)
        self.descend(optimizer, task, penalty, so_far)
        return Learned(Posterior(self.flat.mean()), memory=self.optimizer_memory(optimizer))

    def descend(
        self,
        optimizer: torch.optim.Optimizer,
        task: Task,
        penalty: Penalty | None = None,
        so_far: SoFar | None = None,
    ) -> None:
        """Take a step for every minibatch, pulled by `proximal` towards where it begins."""
        anchor = self.flat.vector.clone() if self.settings.client.proximal else None
        for inputs, labels in task.batches(so_far):
            self.flat.zero_gradient()
            task.backward(self.flat, inputs, labels)
            self.pulled_step(optimizer, anchor=anchor, penalty=penalty)

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        loss: Tensor,
        *,
        anchor: Tensor | None = None,
        penalty: Penalty | None = None,
    ) -> None:
        """Take a step on a minibatch's loss and what the method adds to it."""
        self.flat.zero_gradient()
        loss.backward()
        self.pulled_step(optimizer, anchor=anchor, penalty=penalty)

    def pulled_step(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        anchor: Tensor | None = None,
        penalty: Penalty | None = None,
    ) -> None:
        """Take a step by the gradient that the network has, and what the method adds to it.

        That is its penalty, and the gradient of `proximal`/2 |theta - anchor|^2.
        """
        flat = self.flat
        if penalty is not None:
            flat.gradient.add_(penalty(flat.vector))
        if anchor is not None:
            flat.gradient.add_(flat.vector - anchor, alpha=self.settings.client.proximal)
        self.apply(optimizer)

    def apply(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the optimizer's step by the gradient, clipped if the settings say so."""
        if largest := self.settings.client.clip_norm:
            torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], largest)
        optimizer.step()

    def optimizer(
        self, task: Task, weights: list[nn.Parameter] | None = None
    ) -> torch.optim.Optimizer:
        """Return the optimizer of the settings for these weights.

        None stands for all weights; then it has its state of the last round, where that is kept.
        """
        client = self.settings.client
        learned = [self.flat.as_parameter()] if weights is None else weights
        optimizer: torch.optim.Optimizer
        if client.optimizer == "adam":
            optimizer = Adam(
                learned, lr=task.learning_rate, weight_decay=client.weight_decay, fused=True
            )
        else:
            optimizer = SGD(
                learned,
                lr=task.learning_rate,
                momentum=client.momentum,
                weight_decay=client.weight_decay,
                fused=True,
            )
        kept = {
            name.removeprefix(STATE): self._tensor(value)
            for name, value in task.memory.items()
            if name.startswith(STATE)
        }
        if weights is None and kept:
            optimizer.state[learned[0]] = kept
        return optimizer

    def optimizer_memory(self, optimizer: torch.optim.Optimizer) -> dict[str, np.ndarray]:
        """Return the optimizer's state as the client keeps it; nothing where it begins anew."""
        if self.settings.client.optimizer_state != "kept":
            return {}
        (weights,) = optimizer.param_groups[0]["params"]
        state = optimizer.state[weights]
        return {f"{STATE}{name}": value.cpu().numpy().reshape(-1) for name, value in state.items()}

    def _tensor(self, value: np.ndarray) -> Tensor:
        tensor = sent(torch.from_numpy(value.copy()), self.device)
        return tensor if len(value) > 1 else tensor.squeeze()
