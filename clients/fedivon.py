"""FedIvon's clients, which learn a posterior with IVON, and what others share that run it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from fedivon_app.clients.base import Carries, Learned, M, PosteriorClient, Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.ivon import IVON
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.schedule import Shape
from fedivon_app.core.search_range import choices, even_range, log_range, search
from fedivon_app.core.settings import (
    AnySettings,
    ClientSettings,
    MergeSettings,
    PosteriorClientSettings,
)


class OptimizerSettings(PosteriorClientSettings):
    """What every client that runs IVON has."""

    schedules_steps: ClassVar[bool] = True

    learning_rate: float = Field(
        0.1,
        gt=0,
        description="in the first round",
        json_schema_extra=search(log_range(0.01, 1.0, rescale_lr=True), log_range(1e-4, 0.1)),
    )
    hess_init: float = Field(
        1.0,
        gt=0,
        description="the hessian before round 1; also scales the rate where rescale_lr",
        json_schema_extra=search(log_range(0.01, 5.0)),
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="how slowly the momentum moves")
    beta2: float = Field(
        0.99999,
        ge=0,
        le=1,
        description="how slowly the hessian moves",
        json_schema_extra=search(choices(0.999, 0.9995, 0.9999, 0.99999)),
    )
    mc_samples: int = Field(1, ge=1, description="weight samples a training step")
    clip_radius: float | None = Field(
        None, gt=0, description="bound on a coordinate's preconditioned gradient"
    )
    debias: bool = Field(True, description="correct the momentum for its start at 0")
    rescale_lr: bool = Field(True, description="multiply the rate by hess_init + weight_decay")
    antithetic: bool = Field(
        False,
        description="every second sample mirrors the one before, for half the random numbers",
    )


class IvonSettings(OptimizerSettings):
    """What clients have whose posterior is that of IVON with weight decay."""

    ess: float = Field(
        5000,
        gt=0,
        le=1e12,
        description="effective sample size, IVON's lambda: the calibration knob",
        json_schema_extra=search(log_range(500, 300_000)),
    )
    weight_decay: float = Field(
        2e-4,
        ge=0,
        description="the prior's precision / ess",
        json_schema_extra=search(log_range(1e-5, 0.01)),
    )

    @property
    def initial_precision(self) -> float:
        """Return s = ess (hess_init + weight_decay), the precision before round 1."""
        return self.ess * (self.hess_init + self.weight_decay)


Optimizer = TypeVar("Optimizer", bound=OptimizerSettings)


class IvonTrainer(PosteriorClient[Optimizer, M]):
    """What clients share that train with IVON."""

    def ivon(self, task: Task, **options: Any) -> IVON:
        """Return the optimizer of the settings, at the network's weights."""
        client = self.settings.client
        given: dict[str, Any] = {
            "lr": task.learning_rate,
            "hess_init": client.hess_init,
            "beta1": client.beta1,
            "beta2": client.beta2,
            "mc_samples": client.mc_samples,
            "clip_radius": client.clip_radius or inf,
            "debias": client.debias,
            "rescale_lr": client.rescale_lr,
            "antithetic": client.antithetic,
        }
        return IVON(self.flat.module.parameters(), **(given | options))

    def descend(self, optimizer: IVON, task: Task) -> Posterior:
        """Take a step for every minibatch of the task, and return what was learned."""
        client = self.settings.client
        set_rate = self.rate_within(optimizer, task)
        for step, (inputs, labels) in enumerate(task.batches(optimizer.posterior)):
            set_rate(step)
            for _ in range(client.mc_samples):
                with optimizer.sampled_params(train=True):
                    task.loss(self.flat.module(inputs), labels).backward()
            optimizer.step()
        return optimizer.posterior()

    def rate_within(self, optimizer: IVON, task: Task) -> Callable[[int], None]:
        """Return what sets the rate of a step; it falls within a round if the settings say so."""
        client = self.settings.client
        first = [group["lr"] for group in optimizer.param_groups]

        def set_rate(step: int) -> None:
            if client.schedule_over == "steps":
                fall = client.rates.at(step / max(task.steps - 1, 1)) / client.learning_rate
                for group, rate in zip(optimizer.param_groups, first, strict=True):
                    group["lr"] = rate * fall

        return set_rate


class FedIvonSettings(IvonSettings):
    """FedIvon's own values (Pal et al. 2025, Table 6).

    Mirrored samples, which are not in the paper, cost less and teach the same.
    """

    learning_rate: float = Field(
        0.1,
        gt=0,
        description="in the first round",
        json_schema_extra=search(log_range(0.01, 1.0, rescale_lr=True), log_range(1e-4, 0.1)),
    )
    final_learning_rate: float | None = Field(
        0.01, gt=0, description="at the last round; none: the same as at the first"
    )
    schedule: Shape = Field(
        "linear", description="how the rate falls from the first to the final one"
    )
    antithetic: bool = Field(
        True,
        description="every second sample mirrors the one before, for half the random numbers",
    )


class FedIvonClient(IvonTrainer[FedIvonSettings, MergeSettings]):
    """FedIvon's client (Pal et al. 2025, Algorithm 1): IVON from the server's mean and hessian.

    Its momentum is fresh. With `start: mean` the hessian begins at hess_init in every round, as
    some merges need it.
    """

    settings_type: ClassVar[type[ClientSettings]] = FedIvonSettings

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        optimizer = self.ivon(task, ess=client.ess, weight_decay=client.weight_decay)
        if client.start == "posterior":
            optimizer.precision = start.posterior.known_precision
        return Learned(self.descend(optimizer, task))


class PersonalIvonSettings(IvonSettings):
    """FedIvon's for personal models, where the server's posterior is the prior."""

    start: Literal["posterior"] = "posterior"
    beta: float = Field(
        1.0,
        ge=0,
        description="weight of the divergence from the server's posterior; 0: local training",
        json_schema_extra=search(log_range(0.01, 10.0)),
    )
    prior_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="of the server's precision in the prior; the rest is that of the weight decay",
        json_schema_extra=search(even_range(0.0, 1.0)),
    )


class PersonalIvonClient(IvonTrainer[PersonalIvonSettings, MergeSettings]):
    """FedIvon's personalised client (Pal et al. 2025, Eq. 8).

    Its posterior is its PM, and what the server merges. It minimises
    ess E[loss] + beta KL(q || N(m, 1/s_p)), which is IVON with ess/beta and this prior; m is the
    server's mean, s_p = prior_share s + (1 - prior_share) ess weight_decay with s the server's
    precision. Training starts at the server's posterior. With beta = 0 the server has no say: IVON
    goes on from the client's own PM, with weight decay.

    `rescale_lr` multiplies the rate by hess_init + weight_decay here too: by the prior's precision
    instead, large as it may be, the pull towards the prior would overshoot.
    """

    settings_type: ClassVar[type[ClientSettings]] = PersonalIvonSettings
    carries = Carries.MODEL

    @classmethod
    def carried(cls, settings: AnySettings) -> Carries:
        """Return what clients carry: without the server's pull they go on from their own models."""
        client = settings.client
        alone = isinstance(client, PersonalIvonSettings) and client.beta == 0
        return super().carried(settings) | (Carries.TRAINING if alone else Carries.NOTHING)

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        server = start.posterior
        if client.beta == 0:
            return self.train_alone(server, task)
        floor = client.ess * client.weight_decay
        share = client.prior_share
        prior = Posterior(server.mean, share * server.known_precision + (1 - share) * floor)
        scale = client.hess_init + client.weight_decay if client.rescale_lr else 1
        optimizer = self.ivon(
            task,
            ess=client.ess / client.beta,
            prior=prior,
            lr=task.learning_rate * scale,
            rescale_lr=False,
        )
        optimizer.precision = server.known_precision
        return Learned(self.descend(optimizer, task))

    def train_alone(self, server: Posterior, task: Task) -> Learned:
        """Go on from the client's own PM, or in its first round from the server's posterior."""
        client = self.settings.client
        begin = server
        if (own := task.personal) is not None:
            begin = own.posterior
            self.flat.load(begin.mean)
            self.flat.load_buffers(own.buffers)
        optimizer = self.ivon(task, ess=client.ess, weight_decay=client.weight_decay)
        optimizer.precision = begin.known_precision
        return Learned(self.descend(optimizer, task))
