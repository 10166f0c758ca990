"""Clients that learn a mean-field Gaussian by reparametrised gradients: what they share, and one that learns alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log1p
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fedivon_app.clients.base import PosteriorClient, Task
from fedivon_app.clients.state import recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.meanfield import MeanField, Moment
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import ClientSettings

CHUNK = 512  # examples at once: a step on all of a client's needs no more memory than this


class MeanFieldSettings(ClientSettings):
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd only")
    sigma_init: float = Field(
        log1p(exp(-4)), gt=0, description="standard deviation of every weight before round 1"
    )
    smallest_sigma: float = Field(
        1e-5, gt=0, description="a smaller one, as merges may make them, is raised to this"
    )
    mc_samples: int = Field(5, ge=1, description="draws of the weights a step")

    @property
    def initial_precision(self) -> float | None:
        return self.sigma_init**-2


class BaseHeadSettings(MeanFieldSettings):
    """Where a client learns the two parts of its network one after the other."""

    epochs: int = Field(2, ge=1, description="of the base, with the head frozen")
    batch_size: int = Field(
        50, ge=1, description="for the base; the head is learned on all examples at once"
    )
    learning_rate: float = Field(1e-3, gt=0, description="for the base")
    head: str = Field(
        "head", description="submodule of the model that is its head; the base is the rest"
    )
    head_steps: int = Field(10, ge=0, description="on all examples at once")
    head_learning_rate: float | None = Field(None, gt=0, description="none: that for the base")

    def head_rate(self, task: Task) -> float:
        """The head's rate in a round: it follows the base's schedule."""
        return (
            (self.head_learning_rate or self.learning_rate)
            * task.learning_rate
            / self.learning_rate
        )


class MeanFieldClient(PosteriorClient):
    """What they share: a PM, a fresh optimizer, and steps on expected loss and divergence."""

    Settings = MeanFieldSettings
    personalises = True

    def field(self, posterior: Posterior, part: Any = slice(None), **options: Any) -> MeanField:
        """The part of a posterior, to be learned."""
        return MeanField(self.flat, posterior, part, self.settings.client.smallest_sigma, **options)

    def optimizer(self, parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
        client = self.settings.client
        if client.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=rate, fused=True)
        return torch.optim.SGD(parameters, lr=rate, momentum=client.momentum, fused=True)

    def descend(
        self,
        learned: MeanField,
        batches: Iterable[tuple[Tensor, Tensor]],
        optimizer: torch.optim.Optimizer,
        prior: tuple[Moment, Moment],
        weight: float,
        loss: Literal["sum", "mean"] = "mean",
        drawn: Sequence[MeanField] = (),
    ) -> None:
        """A step on every batch for E_q[loss] + weight KL(q || prior), the prior by its mean and precision.

        The expectation is over the draws of `learned`, and of the fields in `drawn` that stay as they are; the loss is
        the batch's mean or sum of -log likelihood.
        """
        draws = self.settings.client.mc_samples
        for inputs, labels in batches:
            learned.zero_gradient()
            share = (len(labels) if loss == "sum" else 1) / draws
            for _ in range(draws):
                for field in (learned, *drawn):
                    field.draw()
                self.backward(inputs, labels)
                learned.gather(share)
            learned.add_divergence(*prior, weight)
            optimizer.step()

    def backward(self, inputs: Tensor, labels: Tensor) -> None:
        """The gradient of the mean loss of a batch, large as it may be, at the weights that are there."""
        self.flat.zero_gradient()
        for some, theirs in zip(inputs.split(CHUNK), labels.split(CHUNK), strict=True):
            self.loss(some, theirs).mul(len(theirs) / len(labels)).backward()


class LocalBnnSettings(MeanFieldSettings):
    epochs: int = Field(2, ge=1)
    batch_size: int = Field(50, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    prior_variance: float = Field(1.0, gt=0, description="of the prior N(0, prior_variance)")
    kl_weight: float = Field(
        1.0, ge=0, description="of the divergence beside the summed loss; 1 is Bayes' rule"
    )


class LocalBnnClient(MeanFieldClient):
    """A Gaussian network of the client's own: mean NLL + kl_weight KL(q || N(0, prior_variance)) / N, N its examples.

    It goes on from its own PM and sends back what it received, batch norm's statistics included.
    """

    Settings = LocalBnnSettings

    def train(self, start: Payload, task: Task) -> Posterior:
        client = self.settings.client
        own = recall_personal(task.memory) or start
        self.flat.load_buffers(own.buffers)
        field = self.field(own.posterior)
        optimizer = self.optimizer(field.parameters(), task.learning_rate)
        prior = 0.0, 1 / client.prior_variance
        self.descend(field, task.batches(), optimizer, prior, client.kl_weight / len(task.labels))
        self.personal = Payload(field.posterior(), self.flat.buffers)
        self.flat.load_buffers(start.buffers)
        return start.posterior
