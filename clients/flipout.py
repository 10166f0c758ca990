"""Flipout's client, which learns a posterior by Bayes by backprop."""

from __future__ import annotations

from math import log1p
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field
from torch import Tensor

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.task import Learned, Task
from fedivon_app.core.client_settings import ClientSettings, PosteriorClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.optimizers import Adam
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import log_range, search
from fedivon_app.core.variational import VariationalNetwork

SIGMA_INIT = log1p(np.exp(-3.0))  # softplus(-3), where the layers that Fischer et al. use start


class FlipoutSettings(PosteriorClientSettings):
    """The deviations, the prior, and how weights are drawn."""

    start: Literal["posterior", "mean"] = Field(
        "posterior", description="deviations at a round's start: the server's, or sigma_init"
    )
    learning_rate: float = Field(
        0.1,
        gt=0,
        description="in the first round",
        json_schema_extra=search(log_range(1e-4, 0.03)),
    )
    sigma_init: float = Field(
        SIGMA_INIT,
        gt=0,
        description="standard deviation of every weight before round 1",
        json_schema_extra=search(log_range(0.003, 0.2)),
    )
    smallest_sigma: float = Field(
        1e-5, gt=0, description="a smaller one, as merges make them, is raised to this"
    )
    prior: Literal["fixed", "global"] = Field(
        "fixed", description="N(0, prior_variance), or the server's posterior of the round"
    )
    prior_variance: float = Field(
        100.0,
        gt=0,
        description="of the fixed prior",
        json_schema_extra=search(log_range(0.01, 1000.0, prior="fixed")),
    )
    flipout: bool = Field(
        True, description="off: one draw of the weights for all examples of a minibatch"
    )

    def before_round_1(self, epochs: int) -> Self:
        """Return the settings of one who trains alone, whose prior is the fixed one.

        The server's posterior before round 1 is a random network, and narrow: it is no prior.
        """
        return self.model_copy(update={"epochs": epochs, "prior": "fixed"})

    def initial_precision(self, weights: np.ndarray) -> float:
        """Return the precision of every weight before round 1."""
        return self.sigma_init**-2


class FlipoutClient(PosteriorClient[FlipoutSettings, MergeSettings]):
    """Fischer et al.'s client (2024, section 3): Adam on mean NLL + KL(q || prior) / N.

    N is its number of examples.
    """

    settings_type: ClassVar[type[ClientSettings]] = FlipoutSettings

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        inherits = client.start == "posterior"
        sigma = np.sqrt(start.posterior.variance) if inherits else client.sigma_init
        network = VariationalNetwork(self.flat, sigma, client.flipout, client.smallest_sigma)
        prior_mean, prior_precision = self.prior(start.posterior)
        optimizer = Adam(network.parameters(), lr=task.learning_rate, fused=True)
        for inputs, labels in task.batches(network.posterior):
            network.zero_gradient()
            task.loss(network(inputs), labels).backward()
            network.add_divergence(prior_mean, prior_precision, len(task.labels))
            optimizer.step()
        return Learned(network.posterior())

    def prior(self, server: Posterior) -> tuple[Tensor | float, Tensor | float]:
        """Return the mean and the precision of the prior."""
        client = self.settings.client
        if client.prior == "fixed":
            return 0.0, 1 / client.prior_variance
        mean = self.flat.checked(server.mean).clone()
        return mean, self.flat.checked(server.known_precision)
