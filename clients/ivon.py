"""What clients share that run IVON: its settings, the optimizer, and the steps of a round."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field, PositiveFloat

from fedivon_app.clients.base import M, PosteriorClient
from fedivon_app.clients.task import Task
from fedivon_app.core.client_settings import PosteriorClientSettings
from fedivon_app.core.curvature import first_precision, typical_precision
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.ivon import IVON
from fedivon_app.core.normals import Noise, check_noise
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import choices, even_range, log_range, search


class OptimizerSettings(PosteriorClientSettings):
    """What every client that runs IVON has."""

    schedules_steps: ClassVar[bool] = True

    learning_rate: float = Field(
        0.1,
        gt=0,
        description="in the first round",
        json_schema_extra=search(log_range(0.01, 1.0, rescale_lr=True), log_range(1e-4, 0.1)),
    )
    hess_init: PositiveFloat | Literal["auto"] = Field(
        1.0,
        description="the hessian before round 1, which also scales the rate where rescale_lr; "
        "auto: a first sigma of a fifth of the first weights' root mean square, and a rate that "
        "is scaled by the hessian as it is learned",
        json_schema_extra=search(log_range(0.01, 5.0)),
    )
    beta1: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="how slowly the momentum moves",
        json_schema_extra=search(even_range(0.0, 0.95)),
    )
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
    step_bound: float | None = Field(
        None,
        gt=0,
        description="how far a step may move a coordinate, in its sigmas; none: any distance",
    )
    debias: bool = Field(True, description="correct the momentum for its start at 0")
    rescale_lr: bool = Field(True, description="multiply the rate by hess_init + weight_decay")
    antithetic: bool = Field(
        False,
        description="every second sample mirrors the one before, for half the random numbers",
    )
    noise: Noise = Field(
        "torch",
        description="where the random numbers come from: torch, or a table, which is faster on a "
        "CPU and gives different digits; faster: two at once from a table of pairs; fused: draws, "
        "samples and steps in compiled loops, the fastest on a CPU, with the extra `fast`",
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

    def initial_precision(self, weights: np.ndarray) -> float:
        """Return the precision s before round 1, around these weights.

        It is ess (hess_init + weight_decay) or, with `auto`, that of a first sigma which is a share
        of the weights' own size; but the prior, whose precision is ess weight_decay, is in both.
        """
        if self.hess_init == "auto":
            return max(first_precision(weights), self.ess * self.weight_decay)
        return self.ess * (self.hess_init + self.weight_decay)

    def hessian_of(self, received: Posterior, ess: float) -> float:
        """Return the hessian that a round starts with, of all weights, and that scales the rate.

        It is hess_init or, with `auto`, h = t/ess - weight_decay with the harmonic mean t of the
        received precisions: the rate of a weight, lr (h + wd)/(s/ess), is then lr in the mean over
        all weights, in every round. Under `start: mean` t is what it would be before round 1.
        """
        if self.hess_init != "auto":
            return self.hess_init
        if self.start == "mean":
            typical = self.initial_precision(received.mean)
        else:
            typical = typical_precision(received.known_precision)
        return max(typical / ess - self.weight_decay, 0.0)

    def moved_by(self, posterior: Posterior) -> np.ndarray | None:
        """Return how far a gradient of 1 moves each weight, at a rate of 1: 1/(h + wd), scaled."""
        scale = self.hessian_of(posterior, self.ess) + self.weight_decay if self.rescale_lr else 1.0
        return scale * self.ess / posterior.known_precision


Optimizer = TypeVar("Optimizer", bound=OptimizerSettings)


class IvonTrainer(PosteriorClient[Optimizer, M]):
    """What clients share that train with IVON."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        check_noise(self.settings.client.noise, self.device)

    def ivon(self, task: Task, **options: Any) -> IVON:
        """Return the optimizer of the settings, at the network's weights; `options` go before."""
        client = self.settings.client
        if "hess_init" not in options and client.hess_init == "auto":
            raise SettingsError(
                f"client.hess_init is auto, and the clients of {self.settings.strategy} do not "
                "say what that is (client.hessian_of): give it a number"
            )
        given: dict[str, Any] = {
            "lr": task.learning_rate,
            "hess_init": client.hess_init,
            "beta1": client.beta1,
            "beta2": client.beta2,
            "mc_samples": client.mc_samples,
            "clip_radius": client.clip_radius or inf,
            "step_bound": client.step_bound or inf,
            "debias": client.debias,
            "rescale_lr": client.rescale_lr,
            "antithetic": client.antithetic,
            "gradient_noise": task.gradient_noise,
            "noise": client.noise,
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
                    task.backward(self.flat, inputs, labels)
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
