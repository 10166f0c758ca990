"""Local Bayesian networks: a client that learns a Gaussian from nobody."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedivon_app.clients.meanfield import MeanFieldClient, MeanFieldSettings, Prior
from fedivon_app.clients.task import Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.search_range import log_range, search


class LocalBnnSettings(MeanFieldSettings):
    """A mean-field Gaussian's, with a prior that nobody else has a say in."""

    epochs: int = Field(2, ge=1, description="over the client's data, a round")
    batch_size: int = Field(50, ge=1, description="examples a step")
    learning_rate: float = Field(
        1e-3,
        gt=0,
        description="in the first round",
        json_schema_extra=search(log_range(1e-4, 0.03, optimizer="adam"), log_range(1e-4, 0.3)),
    )
    prior_variance: float = Field(
        1.0,
        gt=0,
        description="of the prior N(0, prior_variance)",
        json_schema_extra=search(log_range(0.01, 10.0)),
    )
    kl_weight: float = Field(
        1.0,
        ge=0,
        description="of the divergence beside the summed loss; 1 is Bayes' rule",
        json_schema_extra=search(log_range(1e-3, 1.0)),
    )


class LocalBnnClient(MeanFieldClient[LocalBnnSettings, MergeSettings]):
    """A Gaussian network of the client's own.

    It minimises mean NLL + kl_weight KL(q || N(0, prior_variance)) / N, N its examples. It goes on
    from its own PM and sends back what it received, batch norm's statistics included.
    """

    settings_type: ClassVar[type[ClientSettings]] = LocalBnnSettings

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        own = task.personal or start
        self.flat.load_buffers(own.buffers)
        field = self.field(own.posterior)
        self.descend(
            field,
            task.batches(),
            task=task,
            optimizer=self.optimizer(field.parameters(), task.learning_rate),
            prior=Prior(
                mean=0.0,
                precision=1 / client.prior_variance,
                weight=client.kl_weight / len(task.labels),
            ),
        )
        personal = Payload(field.posterior(), self.flat.buffers)
        self.flat.load_buffers(start.buffers)
        return Learned(start.posterior, personal=personal)
