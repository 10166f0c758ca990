"""Clients that learn a posterior with IVON."""

from __future__ import annotations

from math import inf

from pydantic import Field

from clients.base import PosteriorClient, Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.ivon import IVON
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import PosteriorClientSettings


class IvonSettings(PosteriorClientSettings):
    ess: float = Field(5000, gt=0, description="effective sample size, IVON's lambda: the calibration knob")
    hess_init: float = Field(1.0, gt=0, description="the hessian before round 1; also scales the rate in every round")
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99999, ge=0, le=1)
    weight_decay: float = Field(2e-4, ge=0)
    mc_samples: int = Field(1, ge=1, description="weight samples a training step")
    clip_radius: float | None = Field(None, gt=0, description="bound on a coordinate's preconditioned gradient")
    debias: bool = True
    rescale_lr: bool = True

    @property
    def initial_precision(self) -> float:
        """s = ess (hess_init + weight_decay)."""
        return self.ess * (self.hess_init + self.weight_decay)


class IvonClient(PosteriorClient):
    """FedIvon's client (Pal et al. 2025, Algorithm 1): IVON from the server's mean and hessian, with fresh momentum.

    With `start: mean` the hessian begins at hess_init in every round, as some merges need it.
    """

    Settings = IvonSettings

    def train(self, start: Payload, task: Task) -> Posterior:
        optimizer = self.ivon(start.posterior, task)
        for inputs, labels in task.batches():
            for _ in range(self.settings.client.mc_samples):
                with optimizer.sampled_params(train=True):
                    self.loss(inputs, labels).backward()
            optimizer.step()
        return optimizer.posterior()

    def ivon(self, start: Posterior, task: Task) -> IVON:
        client = self.settings.client
        names = ["ess", "hess_init", "beta1", "beta2", "weight_decay", "mc_samples", "debias", "rescale_lr"]
        optimizer = IVON(
            self.flat.module.parameters(),
            lr=task.learning_rate,
            clip_radius=client.clip_radius or inf,
            **{name: getattr(client, name) for name in names},
        )
        if client.start == "posterior":
            optimizer.precision = start.precision
        return optimizer
