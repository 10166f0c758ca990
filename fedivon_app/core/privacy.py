"""How a private client trains: what it plans to spend, and the gradients that it works with.

DP-SGD's gradient (Abadi et al. 2016, Algorithm 1): a step takes each example with probability
`rate`, adds up their gradients, none of them longer than C, adds N(0, (z C)^2) and divides by the
number of examples that it expects. All that follows from such gradients, and from nothing else
that is known of the examples, costs nothing more: IVON's mean and precision alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, sqrt

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from fedivon_app.core.accountant import noise_for, pure_cost, step_cost
from fedivon_app.core.clipped import clipped_sum
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.privacy_settings import PrivacySettings
from fedivon_app.core.sampling import sampled
from fedivon_app.core.secure_random import SecureRandom
from fedivon_app.core.settings import AnySettings


@dataclass(frozen=True)
class Plan:
    """What a client does in a run that keeps to its epsilon: all of it may be known to anybody.

    `size` is the noisy number of its examples, `rounds` in how many it will take part.
    """

    privacy: PrivacySettings
    size: int
    batch_size: int
    epochs: int
    rounds: int

    @property
    def rate(self) -> float:
        """Return the chance of an example to be taken for a step."""
        return min(self.batch_size / self.size, 1.0)

    @property
    def steps(self) -> int:
        """Return the number of steps in a round."""
        return self.epochs * ceil(self.size / self.batch_size)

    @property
    def expected(self) -> float:
        """Return how many examples a step takes on average."""
        return self.rate * self.size

    @property
    def noise_multiplier(self) -> float:
        """Return z: the least noise with which the planned rounds cost no more than epsilon."""
        return _noise(self.privacy, rate=self.rate, steps=self.steps * self.rounds)

    @property
    def round_cost(self) -> np.ndarray:
        """Return what a round costs, over the accountant's orders."""
        return self.steps * step_cost(self.noise_multiplier, self.rate)

    @property
    def round_noise(self) -> float:
        """Return the standard deviation of the noise in the sum of a round's gradients."""
        return self.gradient_noise * sqrt(self.steps)

    @property
    def gradient_noise(self) -> float:
        """Return the standard deviation of the noise in each coordinate of a mean gradient."""
        return self.noise_multiplier * self.privacy.clip_norm / self.expected


@lru_cache(maxsize=64)
def _noise(privacy: PrivacySettings, *, rate: float, steps: int) -> float:
    assert privacy.epsilon is not None
    before = pure_cost(privacy.size_epsilon)
    try:
        return noise_for(privacy.epsilon, privacy.delta, rate=rate, steps=steps, before=before)
    except ValueError as error:
        raise SettingsError(f"privacy: {error}; lower privacy.size_epsilon") from None


def planned_rounds(settings: AnySettings, partition: int) -> int:
    """Return in how many rounds of a run a client takes part, if all clients stay to its end."""
    clients = settings.data.clients
    count = settings.clients_per_round
    if settings.train_all_clients or clients is None or count is None:
        return settings.rounds
    rounds = [
        number
        for number in range(1, settings.rounds + 1)
        if partition in sampled(range(clients), count, seed=settings.seed, server_round=number)
    ]
    return max(len(rounds), 1)


@dataclass(frozen=True)
class PrivateSteps:
    """The steps of a client's round, by a plan.

    `by_layers` says that the network is known to treat each example by itself.
    """

    plan: Plan
    by_layers: bool = True
    random: SecureRandom = field(default_factory=SecureRandom)

    def batches(self, inputs: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the examples of an epoch's steps, each drawn anew; there may be none in one."""
        for _ in range(self.plan.steps // self.plan.epochs):
            rows = torch.from_numpy(self.random.chosen(len(labels), self.plan.rate))
            rows = rows.to(labels.device)
            yield inputs[rows], labels[rows]

    def backward(self, flat: Flat, inputs: Tensor, labels: Tensor) -> None:
        """Add the noisy mean gradient of a step to the gradients of the network's parameters."""
        gradient = self.noisy_mean(flat, inputs, labels)
        parts = flat.named_parameters(gradient)
        for name, parameter in flat.module.named_parameters():
            assert parameter.grad is not None
            parameter.grad.add_(parts[name])

    def noisy_mean(self, flat: Flat, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean gradient of a step as a flat vector; all that is known of its examples.

        The noise is there whether they are many, few or none.
        """
        clip_norm = self.plan.privacy.clip_norm
        total = clipped_sum(flat, inputs, labels, clip_norm, by_layers=self.by_layers)
        noise = self.random.normal(len(flat)).to(total)
        total.add_(noise, alpha=self.plan.noise_multiplier * clip_norm)
        return total.div_(self.plan.expected)


def check_hides_examples(flat: Flat) -> None:
    """Complain by name of layers that mix examples, as batch norm does, and of frozen weights."""
    for name, parameter in flat.module.named_parameters():
        if not parameter.requires_grad:
            raise SettingsError(
                f"privacy.epsilon is set, and the model's weights {name} are frozen: private "
                "gradients are made for networks that learn all of their weights"
            )
    for name, module in flat.module.named_modules():
        if isinstance(module, _NormBase):
            raise SettingsError(
                f"privacy.epsilon is set, and the model's layer {name} is a "
                f"{type(module).__name__}: its statistics mix examples and leave the client "
                "without noise; take a model without it, such as lenet or cnn6, or GroupNorm"
            )


def unhidden(settings: AnySettings) -> str:
    """Return which of the settings would let examples be seen without noise, or nothing."""
    samples = getattr(settings.client, "mc_samples", 1)
    if samples != 1:
        return (
            f"client.mc_samples is {samples}: every sample of the weights would be a release "
            "of its own, so that it has to be 1"
        )
    if every := settings.evaluation.clients_every:
        return (
            f"evaluation.clients_every is {every}: scores on the clients' test parts would leave "
            "them without noise, so that it has to be 0"
        )
    if fraction := settings.pretraining.fraction:
        return (
            f"pretraining.fraction is {fraction:g}: pretraining sees examples without noise, so "
            "that it has to be 0"
        )
    if settings.data.source == "nodes" and settings.data.num_classes is None:
        return "data.num_classes is not set: which labels a site has does not leave it"
    return ""
