"""What clients share that learn a mean-field Gaussian by reparametrised gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log1p
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from fedivon_app.clients.base import M, PosteriorClient
from fedivon_app.clients.task import Carries, Task
from fedivon_app.core.client_settings import ClientSettings, HeadSettings
from fedivon_app.core.flat import Part
from fedivon_app.core.meanfield import MeanField, Moment
from fedivon_app.core.optimizers import SGD, Adam
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import log_range, search

CHUNK = 512  # examples at once: a step on all of a client's needs no more memory than this


class MeanFieldSettings(ClientSettings):
    """What every client has that learns a mean-field Gaussian."""

    optimizer: Literal["adam", "sgd"] = Field("adam", description="of the Gaussian")
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd only")
    sigma_init: float = Field(
        log1p(exp(-4)),
        gt=0,
        description="standard deviation of every weight before round 1",
        json_schema_extra=search(log_range(0.003, 0.2)),
    )
    smallest_sigma: float = Field(
        1e-5, gt=0, description="a smaller one, as merges may make them, is raised to this"
    )
    mc_samples: int = Field(5, ge=1, description="draws of the weights a step")

    def initial_precision(self, weights: np.ndarray) -> float | None:
        """Return the precision of every weight before round 1; None where a point is sent."""
        return self.sigma_init**-2


class BaseHeadSettings(MeanFieldSettings, HeadSettings):
    """What clients have that learn the two parts of their network one after the other."""

    epochs: int = Field(2, ge=1, description="of the base, with the head frozen")
    batch_size: int = Field(
        50, ge=1, description="for the base; the head is learned on all examples at once"
    )
    learning_rate: float = Field(
        1e-3,
        gt=0,
        description="for the base",
        json_schema_extra=search(log_range(1e-4, 0.03, optimizer="adam"), log_range(1e-4, 0.3)),
    )
    head_steps: int = Field(10, ge=0, description="on all examples at once")
    head_learning_rate: float | None = Field(
        None,
        gt=0,
        description="none: that for the base",
        json_schema_extra=search(log_range(1e-5, 0.1)),
    )

    def head_rate(self, task: Task) -> float:
        """Return the head's rate in a round: it follows the base's schedule."""
        first = self.head_learning_rate or self.learning_rate
        return first * task.learning_rate / self.learning_rate


@dataclass(frozen=True, eq=False)
class Prior:
    """A Gaussian prior by its mean and precision, and the weight of the divergence from it."""

    mean: Moment
    precision: Moment
    weight: float


F = TypeVar("F", bound=MeanFieldSettings)
Forward = Callable[[Tensor], Tensor]


class MeanFieldClient(PosteriorClient[F, M]):
    """What they share: a PM, a fresh optimizer, and steps on expected loss and divergence."""

    settings_type: ClassVar[type[ClientSettings]] = MeanFieldSettings
    carries = Carries.MODEL | Carries.TRAINING

    def field(
        self, posterior: Posterior, part: Part = slice(None), *, noise: float = 1.0
    ) -> MeanField:
        """Return the part of a posterior, to be learned."""
        smallest = self.settings.client.smallest_sigma
        return MeanField(self.flat, posterior, part, smallest_sigma=smallest, noise=noise)

    def optimizer(self, parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
        """Return a fresh optimizer of the settings."""
        client = self.settings.client
        if client.optimizer == "adam":
            return Adam(parameters, lr=rate, fused=True)
        return SGD(parameters, lr=rate, momentum=client.momentum, fused=True)

    def descend(
        self,
        learned: MeanField,
        batches: Iterable[tuple[Tensor, Tensor]],
        *,
        task: Task,
        optimizer: torch.optim.Optimizer,
        prior: Prior,
        loss: Literal["sum", "mean"] = "mean",
        drawn: Sequence[MeanField] = (),
        forward: Forward | None = None,
    ) -> None:
        """Take a step on every batch for E_q[loss] + weight KL(q || prior).

        The expectation is over the draws of `learned`, and of the fields in `drawn` that stay as
        they are; the loss is the batch's mean or sum of -log likelihood. `forward` gives the
        logits, where that is not the whole network.
        """
        draws = self.settings.client.mc_samples
        for inputs, labels in batches:
            learned.zero_gradient()
            share = (len(labels) if loss == "sum" else 1) / draws
            for _ in range(draws):
                for field in (learned, *drawn):
                    field.draw()
                self.backward(inputs, labels, task, forward or self.flat.module)
                learned.gather(share)
            learned.add_divergence(prior.mean, prior.precision, prior.weight)
            optimizer.step()

    def backward(self, inputs: Tensor, labels: Tensor, task: Task, forward: Forward) -> None:
        """Compute the gradient of the mean loss of a batch, large as it may be, at the weights."""
        self.flat.zero_gradient()
        for some, theirs in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
            loss = task.loss(forward(some), theirs)
            loss.mul(len(theirs) / len(labels)).backward()
