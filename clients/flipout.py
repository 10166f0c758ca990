"""Clients that learn a posterior by Bayes by backprop with Flipout."""

from __future__ import annotations

from math import log1p
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedivon_app.clients.base import PosteriorClient, Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import PosteriorClientSettings
from fedivon_app.core.variational import VariationalNetwork

SIGMA_INIT = log1p(np.exp(-3.0))  # softplus(-3), where the layers that Fischer et al. use start


class VariationalSettings(PosteriorClientSettings):
    start: Literal["posterior", "mean"] = Field(
        "posterior", description="deviations at a round's start: the server's, or sigma_init"
    )
    sigma_init: float = Field(
        SIGMA_INIT, gt=0, description="standard deviation of every weight before round 1"
    )
    smallest_sigma: float = Field(
        1e-5, gt=0, description="a smaller one, as merges make them, is raised to this"
    )
    prior: Literal["fixed", "global"] = Field(
        "fixed", description="N(0, prior_variance), or the server's posterior of the round"
    )
    prior_variance: float = Field(100.0, gt=0)
    flipout: bool = Field(
        True, description="off: one draw of the weights for all examples of a minibatch"
    )

    @property
    def initial_precision(self) -> float:
        return self.sigma_init**-2


class VariationalClient(PosteriorClient):
    """Fischer et al.'s client (2024, section 3): Adam on mean NLL + KL(q || prior) / N, N its number of examples."""

    Settings = VariationalSettings

    def train(self, start: Payload, task: Task) -> Posterior:
        client = self.settings.client
        sigma = (
            np.sqrt(start.posterior.variance) if client.start == "posterior" else client.sigma_init
        )
        self.network = VariationalNetwork(self.flat, sigma, client.flipout, client.smallest_sigma)
        prior = self.prior(start.posterior)
        optimizer = torch.optim.Adam(self.network.parameters(), lr=task.learning_rate, fused=True)
        for inputs, labels in task.batches():
            self.network.zero_gradient()
            self.loss(inputs, labels).backward()
            self.network.add_divergence(*prior, len(task.labels))
            optimizer.step()
        return self.network.posterior()

    def prior(self, server: Posterior) -> tuple[Tensor | float, Tensor | float]:
        """Mean and precision of the prior."""
        if self.settings.client.prior == "fixed":
            return 0.0, 1 / self.settings.client.prior_variance
        return self.flat.checked(server.mean).clone(), self.flat.checked(server.precision)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network(inputs)
