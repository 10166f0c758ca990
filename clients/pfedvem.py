"""pFedVEM's client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedivon_app.clients.meanfield import CHUNK, BaseHeadSettings, MeanFieldClient, Prior
from fedivon_app.clients.parts import alone
from fedivon_app.clients.task import Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.meanfield import MeanField
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import log_range, search

CERTAIN = float(
    np.finfo(np.float32).max
)  # of weights that are points, in a PM whose head has a precision


class PFedVEMSettings(BaseHeadSettings):
    """pFedVEM's, with plain SGD."""

    optimizer: Literal["adam", "sgd"] = Field("sgd", description="of the Gaussian")
    momentum: float = Field(0.9, ge=0, lt=1, description="sgd only")
    epochs: int = Field(5, ge=1, description="of the base, with the head frozen")
    batch_size: int = Field(
        10, ge=1, description="for the base; the head is learned on all examples at once"
    )
    sigma_init: float = Field(
        1.0,
        gt=0,
        description="standard deviation of the head's weights in a client's first round",
        json_schema_extra=search(log_range(0.03, 3.0)),
    )

    def initial_precision(self, weights: np.ndarray) -> None:
        """Return nothing, for a server's model is a point."""
        return None


class PFedVEMClient(MeanFieldClient[PFedVEMSettings, MergeSettings]):
    """pFedVEM's client (Zhu et al. 2023): a Gaussian head of its own on the server's base, a point.

    With (m_k, var_k) the head so far, d its size and mu the server's, rho_k^2 = [sum var_k + sum
    (m_k - mu)^2] / d. Then the head on summed NLL + KL(q || N(mu, rho_k^2)), then the base on the
    NLL averaged over draws of the head. It sends the head's mean and the base; rho_k^2 is the
    metric `head_variance`; the head's variances never travel.

    The base is computed once for all draws of the head, so the model has to be head(base(inputs)).
    """

    settings_type: ClassVar[type[ClientSettings]] = PFedVEMSettings

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        own = task.personal
        place = self.flat.part("head", client.head)
        first = Posterior(start.posterior.mean, np.full(len(self.flat), client.sigma_init**-2))
        head = self.field(own.posterior if own else first, place)
        center = self.flat.checked(start.posterior.mean)[place].clone()
        spread = head.sigma.square() + (head.mean.detach() - center).square()
        variance = float(spread.mean())
        self.learn_head(head, task, Prior(mean=center, precision=1 / variance, weight=1.0))
        self.learn_base(head, task)
        mean = self.flat.mean()
        mean[place] = head.mean.detach().cpu().numpy()
        whole = Posterior(mean, np.full(len(mean), CERTAIN))
        return Learned(
            Posterior(mean),
            personal=Payload(head.within(whole), self.flat.buffers),
            metrics={"head_variance": variance},
        )

    def learn_head(self, head: MeanField, task: Task, prior: Prior) -> None:
        """Learn the head on the base's features, which are computed once."""
        client = self.settings.client
        module = self.flat.module
        with headless(module, client.head) as head_module, torch.no_grad():
            features = torch.cat([module(some) for some in task.inputs.split(CHUNK)])
        self.descend(
            head,
            [(features, task.labels)] * client.head_steps,
            task=task,
            optimizer=self.optimizer(head.parameters(), client.head_rate(task)),
            prior=prior,
            loss="sum",
            forward=head_module,
        )

    def learn_base(self, head: MeanField, task: Task) -> None:
        """Learn the base on the mean NLL over draws of the head, all of them at once."""
        client = self.settings.client
        flat = self.flat
        draws = client.mc_samples
        head.zero_gradient()
        base = flat.part("base", client.head)
        with alone(flat, base) as weights, headless(flat.module, client.head) as head_module:
            if not weights:
                return
            optimizer = self.optimizer(weights, task.learning_rate)
            for inputs, labels in task.batches():
                flat.zero_gradient()
                drawn = head.draws(draws)
                logits = together(head_module, drawn, flat.module(inputs))
                task.loss(logits, labels.repeat(draws)).backward()
                optimizer.step()


def together(head: nn.Module, draws: Tensor, features: Tensor) -> Tensor:
    """Return the logits by each row of the head's weights, one below the other."""
    parameters = dict(head.named_parameters())
    parts = draws.split([parameter.numel() for parameter in parameters.values()], dim=1)
    weights = {
        name: part.view(-1, *parameters[name].shape)
        for name, part in zip(parameters, parts, strict=True)
    }

    def forward(own: dict[str, Tensor]) -> Tensor:
        logits: Tensor = functional_call(head, own, (features,))
        return logits

    logits: Tensor = vmap(forward, randomness="different")(weights)
    return logits.flatten(0, 1)


@contextmanager
def headless(module: nn.Module, name: str) -> Iterator[nn.Module]:
    """Give the head of this name, while the module gives the features that come to it."""
    parent, _, child = name.rpartition(".")
    owner = module.get_submodule(parent)
    head = owner.get_submodule(child)
    setattr(owner, child, nn.Identity())
    try:
        yield head
    finally:
        setattr(owner, child, head)
