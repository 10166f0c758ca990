"""Clients that learn a posterior with IVON."""

from __future__ import annotations

from math import inf
from typing import Any, Literal

from pydantic import Field

from fedivon_app.clients.base import PosteriorClient, Task
from fedivon_app.clients.state import recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.ivon import IVON
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import PosteriorClientSettings, Settings


class OptimizerSettings(PosteriorClientSettings):
    """What every client that runs IVON has."""

    hess_init: float = Field(
        1.0, gt=0, description="the hessian before round 1; also scales the rate where rescale_lr"
    )
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99999, ge=0, le=1)
    schedule_over: Literal["rounds", "steps"] = Field(
        "rounds",
        description="what linear and cosine run over: the rounds, or in every round anew the local steps",
    )
    mc_samples: int = Field(1, ge=1, description="weight samples a training step")
    clip_radius: float | None = Field(
        None, gt=0, description="bound on a coordinate's preconditioned gradient"
    )
    debias: bool = True
    rescale_lr: bool = True
    antithetic: bool = Field(
        False,
        description="every second weight sample mirrors the one before: half the random numbers, a steadier hessian",
    )


class IvonSettings(OptimizerSettings):
    ess: float = Field(
        5000, gt=0, description="effective sample size, IVON's lambda: the calibration knob"
    )
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
        names = ["hess_init", "beta1", "beta2", "mc_samples", "debias", "rescale_lr", "antithetic"]
        given = {"lr": task.learning_rate, "clip_radius": client.clip_radius or inf}
        given |= {name: getattr(client, name) for name in names}
        return IVON(self.flat.module.parameters(), **(given | options))

    def descend(self, optimizer: IVON, task: Task) -> Posterior:
        """Every minibatch of the task; then what was learned."""
        client = self.settings.client
        first = [group["lr"] for group in optimizer.param_groups]
        for step, (inputs, labels) in enumerate(task.batches()):
            if client.schedule_over == "steps":
                fall = client.rate_at(step / max(task.steps - 1, 1)) / client.learning_rate
                for group, rate in zip(optimizer.param_groups, first, strict=True):
                    group["lr"] = rate * fall
            for _ in range(client.mc_samples):
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


class PersonalIvonSettings(IvonSettings):
    start: Literal["posterior"] = "posterior"
    beta: float = Field(
        1.0,
        ge=0,
        description="weight of the divergence from the server's posterior; 0: local training",
    )
    prior_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="of the server's precision in the prior; the rest is that of the weight decay",
    )


class PersonalIvonClient(IvonTrainer):
    """FedIvon's personalised client (Pal et al. 2025, Eq. 8): its posterior is its PM, and what the server merges.

    Minimises ess E[loss] + beta KL(q || N(m, 1/s_p)), which is IVON with ess/beta and this prior; m is the server's
    mean, s_p = prior_share s + (1 - prior_share) ess weight_decay with s the server's precision. Training starts at the
    server's posterior. With beta = 0 the server has no say: IVON goes on from the client's own PM, with weight decay.

    `rescale_lr` multiplies the rate by hess_init + weight_decay here too: by the prior's precision instead, large as it
    may be, the pull towards the prior would overshoot.
    """

    Settings = PersonalIvonSettings
    personalises = True

    @classmethod
    def goes_on(cls, settings: Settings) -> bool:
        return settings.client.beta == 0

    def train(self, start: Payload, task: Task) -> Posterior:
        client = self.settings.client
        server = start.posterior
        if client.beta == 0:
            return self.train_alone(recall_personal(task.memory), server, task)
        floor = client.ess * client.weight_decay
        prior = Posterior(
            server.mean, client.prior_share * server.precision + (1 - client.prior_share) * floor
        )
        rate = task.learning_rate * (
            client.hess_init + client.weight_decay if client.rescale_lr else 1
        )
        optimizer = self.ivon(
            task, ess=client.ess / client.beta, prior=prior, lr=rate, rescale_lr=False
        )
        optimizer.precision = server.precision
        return self.descend(optimizer, task)

    def train_alone(self, own: Payload | None, server: Posterior, task: Task) -> Posterior:
        client = self.settings.client
        begin = own.posterior if own else server
        if own:
            self.flat.load(begin.mean)
            self.flat.load_buffers(own.buffers)
        optimizer = self.ivon(task, ess=client.ess, weight_decay=client.weight_decay)
        optimizer.precision = begin.precision
        return self.descend(optimizer, task)
