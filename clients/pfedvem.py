"""pFedVEM's client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedivon_app.clients.base import Task
from fedivon_app.clients.meanfield import CHUNK, BaseHeadSettings, MeanFieldClient
from fedivon_app.clients.parts import alone
from fedivon_app.clients.state import recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.meanfield import MeanField
from fedivon_app.core.posterior import Posterior

CERTAIN = float(
    np.finfo(np.float32).max
)  # the precision of weights that are points, in a PM whose head has one


class PFedVEMSettings(BaseHeadSettings):
    optimizer: Literal["adam", "sgd"] = "sgd"
    momentum: float = Field(0.9, ge=0, lt=1, description="sgd only")
    epochs: int = Field(5, ge=1, description="of the base, with the head frozen")
    batch_size: int = Field(
        10, ge=1, description="for the base; the head is learned on all examples at once"
    )
    sigma_init: float = Field(
        1.0, gt=0, description="standard deviation of the head's weights in a client's first round"
    )

    @property
    def initial_precision(self) -> None:
        return None  # a server's model is a point


class PFedVEMClient(MeanFieldClient):
    """pFedVEM's client (Zhu et al. 2023): a Gaussian head of its own on the server's base, a point.

    With (m_k, var_k) the head so far, d its size and mu the server's, rho_k^2 = [sum var_k + sum (m_k - mu)^2] / d.
    Then the head on summed NLL + KL(q || N(mu, rho_k^2)), then the base on the NLL averaged over draws of the head. It
    sends the head's mean and the base; rho_k^2 is the metric `head_variance`; the head's variances never travel.

    The base is computed once for all draws of the head, so the model has to be head(base(inputs)).
    """

    Settings = PFedVEMSettings

    def train(self, start: Payload, task: Task) -> Posterior:
        client = self.settings.client
        own = recall_personal(task.memory)
        place = self.flat.part("head", client.head)
        first = Posterior(start.posterior.mean, np.full(len(self.flat), client.sigma_init**-2))
        head = self.field(own.posterior if own else first, place)
        center = self.flat.checked(start.posterior.mean)[place].clone()
        variance = float((head.sigma.square() + (head.mean.detach() - center).square()).mean())
        self.metrics["head_variance"] = variance
        self.learn_head(head, task, (center, 1 / variance))
        self.learn_base(head, task)
        mean = self.flat.mean()
        mean[place] = head.mean.detach().cpu().numpy()
        whole = Posterior(mean, np.full(len(mean), CERTAIN))
        self.personal = Payload(head.within(whole), self.flat.buffers)
        return Posterior(mean)

    def forward(self, features: Tensor) -> Tensor:
        return self.head(features)

    def learn_head(self, head: MeanField, task: Task, prior: tuple[Tensor, float]) -> None:
        client = self.settings.client
        module = self.flat.module
        with headless(module, client.head) as self.head, torch.no_grad():
            features = torch.cat([module(some) for some in task.inputs.split(CHUNK)])
        batches = [(features, task.labels)] * client.head_steps
        self.descend(
            head,
            batches,
            self.optimizer(head.parameters(), client.head_rate(task)),
            prior,
            1.0,
            "sum",
        )

    def learn_base(self, head: MeanField, task: Task) -> None:
        """Mean NLL over draws of the head, all of them at once on the base's features."""
        client = self.settings.client
        flat = self.flat
        draws = self.settings.client.mc_samples
        head.zero_gradient()
        with (
            alone(flat, flat.part("base", client.head)) as weights,
            headless(flat.module, client.head) as module,
        ):
            if not weights:
                return
            optimizer = self.optimizer(weights, task.learning_rate)
            for inputs, labels in task.batches():
                flat.zero_gradient()
                self.head = partial(together, module, head.draws(draws))
                self.loss(flat.module(inputs), labels.repeat(draws)).backward()
                optimizer.step()


def together(head: nn.Module, draws: Tensor, features: Tensor) -> Tensor:
    """The logits by each row of its weights, one below the other."""
    parameters = dict(head.named_parameters())
    parts = draws.split([parameter.numel() for parameter in parameters.values()], dim=1)
    weights = {
        name: part.view(-1, *parameters[name].shape)
        for name, part in zip(parameters, parts, strict=True)
    }
    logits = vmap(lambda own: functional_call(head, own, (features,)), randomness="different")(
        weights
    )
    return logits.flatten(0, 1)


@contextmanager
def headless(module: nn.Module, name: str) -> Iterator[nn.Module]:
    """The head of this name, while the module gives the features that come to it."""
    parent, _, child = name.rpartition(".")
    owner = module.get_submodule(parent)
    head = owner.get_submodule(child)
    setattr(owner, child, nn.Identity())
    try:
        yield head
    finally:
        setattr(owner, child, head)
