"""Clients that learn a posterior with IVON."""

from __future__ import annotations

from math import inf
from typing import Any

from pydantic import Field

from clients.base import PosteriorClient, Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.ivon import IVON
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import PosteriorClientSettings


class OptimizerSettings(PosteriorClientSettings):
    """What every client that runs IVON has."""

    hess_init: float = Field(1.0, gt=0, description="the hessian before round 1; also scales the rate where rescale_lr")
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99999, ge=0, le=1)
    mc_samples: int = Field(1, ge=1, description="weight samples a training step")
    clip_radius: float | None = Field(None, gt=0, description="bound on a coordinate's preconditioned gradient")
    debias: bool = True
    rescale_lr: bool = True


class IvonSettings(OptimizerSettings):
    ess: float = Field(5000, gt=0, description="effective sample size, IVON's lambda: the calibration knob")
    weight_decay: float = Field(2e-4, ge=0)

    @property
    def initial_precision(self) -> float:
        """s = ess (hess_init + weight_decay)."""
        return self.ess * (self.hess_init + self.weight_decay)


class IvonTrainer(PosteriorClient):
    """What clients share that train with IVON."""

    def ivon(self, task: Task, **options: Any) -> IVON:
        """The optimizer of the settings, at the network's weights."""
        client = self.settings.client
        names = ["hess_init", "beta1", "beta2", "mc_samples", "debias", "rescale_lr"]
        return IVON(
            self.flat.module.parameters(),
            lr=task.learning_rate,
            clip_radius=client.clip_radius or inf,
            **{name: getattr(client, name) for name in names},
            **options,
        )

    def descend(self, optimizer: IVON, task: Task) -> Posterior:
        """Every minibatch of the task; then what was learned."""
        for inputs, labels in task.batches():
            for _ in range(self.settings.client.mc_samples):
                with optimizer.sampled_params(train=True):
                    self.loss(inputs, labels).backward()
            optimizer.step()
        return optimizer.posterior()


class IvonClient(IvonTrainer):
    """FedIvon's client (Pal et al. 2025, Algorithm 1): IVON from the server's mean and hessian, with fresh momentum.

    With `start: mean` the hessian begins at hess_init in every round, as some merges need it.
    """

    Settings = IvonSettings

    def train(self, start: Payload, task: Task) -> Posterior:
        client = self.settings.client
        optimizer = self.ivon(task, ess=client.ess, weight_decay=client.weight_decay)
        if client.start == "posterior":
            optimizer.precision = start.posterior.precision
        return self.descend(optimizer, task)
