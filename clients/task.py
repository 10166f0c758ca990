"""What a round of training is made of: what goes in (`Task`), and what comes out (`Learned`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from math import ceil

import numpy as np
import torch
from torch import Tensor

from fedivon_app.clients.state import recall_personal
from fedivon_app.core.codec import Coded, Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.likelihood import CLASSES, Likelihood
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.privacy import PrivateSteps
from fedivon_app.core.transfer import sent

SoFar = Callable[[], Posterior]  # returns what training has come to


class Carries(Flag):
    """What a client carries from one round of a run to the next."""

    NOTHING = 0
    MODEL = auto()  # a personal model, which is scored beside the global one
    TRAINING = auto()  # what later rounds build on, so that each of its rounds counts


@dataclass
class LossMeter:
    """The mean of the training losses that were computed."""

    total: Tensor | float = 0.0
    count: int = 0

    def add(self, loss: Tensor | float) -> None:
        """Count one minibatch's loss."""
        self.total = self.total + (loss.detach() if isinstance(loss, Tensor) else loss)
        self.count += 1

    def pass_over(self) -> None:
        """Count one minibatch whose loss nobody is to see."""
        self.count += 1

    @property
    def mean(self) -> float:
        """Return the mean; 0 where there was none."""
        return float(self.total) / max(self.count, 1)


def seeded(entropy: Sequence[int], device: torch.device) -> torch.Generator:
    """Seed torch's own random numbers for a round, and return those of the examples' order."""
    seeds = np.random.SeedSequence(entropy).generate_state(2)
    if device.type == "cpu":
        # torch's own takes longer: it notes for absent devices by whom it was called
        torch.default_generator.manual_seed(int(seeds[0]))
    else:
        torch.manual_seed(int(seeds[0]))
    return torch.Generator().manual_seed(int(seeds[1]))


@dataclass(frozen=True)
class Task:
    """One round of local training: the data in memory, the rate, and the order of the examples.

    `first` tells that nothing has been merged yet. `total_examples` are those of all clients, and
    `memory` is what this one kept. Losses are noted as they are computed. Who looks on does so by
    `after_epoch`: it is called with what the client gave to `batches`, and returns whether training
    goes on. In a private run `private` draws the minibatches, and makes their gradients.
    """

    inputs: Tensor
    labels: Tensor
    epochs: int
    batch_size: int
    learning_rate: float
    generator: torch.Generator
    server_round: int = 1
    first: bool = False
    total_examples: int = 0
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    losses: LossMeter = field(default_factory=LossMeter)
    likelihood: Likelihood = CLASSES
    after_epoch: Callable[[SoFar | None], bool] | None = None
    private: PrivateSteps | None = None

    @property
    def num_examples(self) -> int:
        """Return how many examples there are, as far as anybody may know."""
        return len(self.labels) if self.private is None else self.private.plan.size

    @property
    def steps(self) -> int:
        """Return how many minibatches there are."""
        if self.private is not None:
            return self.private.plan.steps
        return self.epochs * ceil(len(self.labels) / self.batch_size)

    def batches(self, so_far: SoFar | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every example once an epoch, shuffled, in minibatches.

        In a private run each minibatch is drawn by itself, and may be empty. `so_far` returns the
        posterior that training has come to, for those who look on. A client whose posterior is the
        point that the network holds need not give it.
        """
        for _ in range(self.epochs):
            yield from self._epoch()
            if self.after_epoch is not None and not self.after_epoch(so_far):
                return

    def _epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.private is not None:
            yield from self.private.batches(self.inputs, self.labels)
            return
        order = torch.randperm(len(self.labels), generator=self.generator)
        for rows in sent(order, self.labels.device).split(self.batch_size):
            yield self.inputs[rows], self.labels[rows]

    def backward(self, flat: Flat, inputs: Tensor, labels: Tensor) -> None:
        """Add the gradient of a minibatch's mean loss to those of the network's parameters.

        In a private run it is clipped and noisy, and all that is known of the minibatch.
        """
        if self.private is None:
            self.loss(flat.module(inputs), labels).backward()
        else:
            self.private.backward(flat, inputs, labels)
            self.losses.pass_over()

    @property
    def gradient_noise(self) -> float:
        """Return the standard deviation of the noise in each coordinate of a gradient."""
        return 0.0 if self.private is None else self.private.plan.gradient_noise

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a minibatch, cross-entropy where classes are learned; note it."""
        loss = self.likelihood.loss(logits, labels)
        self.losses.add(loss)
        return loss

    @property
    def personal(self) -> Payload | None:
        """Return the client's personal model as it kept it, or None before it has one."""
        return recall_personal(self.memory)


@dataclass(frozen=True, eq=False)
class Learned:
    """What a client made of a round.

    `posterior` is what the server merges, `personal` the client's own model where that is another,
    `extras` what goes with the posterior on the wire (None: as it came), `memory` what the client
    keeps for later rounds, and `metrics` what it has to tell besides the loss. `follow` returns
    what it keeps besides of a reply as the server will read it: the server follows that by itself.
    """

    posterior: Posterior
    personal: Payload | None = None
    extras: Mapping[str, np.ndarray] | None = None
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    follow: Callable[[Payload], Mapping[str, np.ndarray]] | None = None

    def lasting(
        self, kept: Mapping[str, np.ndarray], coded: Coded | None, coupled: Collection[str]
    ) -> dict[str, np.ndarray]:
        """Return what a client keeps, which has `kept` so far.

        Of one that sends nothing, what the server follows by itself (`coupled`) stays as it was.
        """
        memory = dict(self.memory)
        if coded is not None:
            return memory | dict(self.follow(coded.decoded) if self.follow else {})
        own = {name: array for name, array in memory.items() if name not in coupled}
        return own | {name: kept[name] for name in coupled if name in kept}


@dataclass(frozen=True, eq=False)
class ClientReply:
    """A client's answer to a round: what it sends, if it is to report, and its metrics."""

    coded: Coded | None
    num_examples: int
    metrics: dict[str, float]

    @property
    def payload(self) -> Payload | None:
        """Return what the server will read, or None for who does not report."""
        return None if self.coded is None else self.coded.decoded
