"""pFedBayes' client."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import exp, log1p
from typing import ClassVar

from pydantic import Field

from fedivon_app.clients.meanfield import MeanFieldClient, MeanFieldSettings, Prior
from fedivon_app.clients.task import Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.search_range import log_range, search


class PFedBayesSettings(MeanFieldSettings):
    """pFedBayes' two rates, its steps, and the weight of the divergence."""

    batch_size: int = Field(100, ge=1, description="examples a step")
    learning_rate: float = Field(
        1e-3,
        gt=0,
        description="of the local copy of the server's posterior",
        json_schema_extra=search(log_range(1e-4, 0.03, optimizer="adam"), log_range(1e-4, 0.3)),
    )
    personal_learning_rate: float | None = Field(
        None,
        gt=0,
        description="of the PM; none: the same",
        json_schema_extra=search(log_range(1e-4, 0.03)),
    )
    minibatches: int | None = Field(20, ge=1, description="a round; none: all of its epochs'")
    personal_steps: int = Field(5, ge=1, description="of the PM, on every minibatch")
    zeta: float = Field(
        10.0,
        ge=0,
        description="weight of the divergence in a round",
        json_schema_extra=search(log_range(0.1, 100.0)),
    )
    sigma_init: float = Field(
        log1p(exp(-3)),
        gt=0,
        description="standard deviation of every weight before round 1",
        json_schema_extra=search(log_range(0.003, 0.2)),
    )
    mc_samples: int = Field(1, ge=1, description="draws of the weights a step")
    noise: float = Field(
        1.0,
        gt=0,
        description="standard deviation of a draw's eps; the official code's 0.001 is a defect",
    )


class PFedBayesClient(MeanFieldClient[PFedBayesSettings, MergeSettings]):
    """pFedBayes' client (Zhang et al. 2022), with q its PM and w a copy of the server's posterior.

    On every minibatch of R: `personal_steps` steps of q on -sum log likelihood + (zeta/R) KL(q ||
    w), then one of w on (zeta/R) KL(q || w). q goes on from round to round; w begins at the
    server's posterior, and is sent.
    """

    settings_type: ClassVar[type[ClientSettings]] = PFedBayesSettings

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        count = client.minibatches or task.steps
        weight = client.zeta / count
        q = self.field((task.personal or start).posterior, noise=client.noise)
        w = self.field(start.posterior)
        first = client.personal_learning_rate or client.learning_rate
        by_q = self.optimizer(q.parameters(), first * task.learning_rate / client.learning_rate)
        by_w = self.optimizer(w.parameters(), task.learning_rate)
        for batch in islice(replace(task, epochs=count).batches(), count):
            w.zero_gradient()
            self.descend(
                q,
                [batch] * client.personal_steps,
                task=task,
                optimizer=by_q,
                prior=Prior(w.mean.detach(), w.sigma.pow(-2), weight),
                loss="sum",
            )
            q.zero_gradient()
            w.add_fit(q.mean.detach(), q.sigma.square(), weight)
            by_w.step()
        return Learned(w.posterior(), personal=Payload(q.posterior(), self.flat.buffers))
