"""FedIvon's clients, which learn a posterior with IVON: for one model, and for personal ones."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedivon_app.clients.ivon import IvonSettings, IvonTrainer
from fedivon_app.clients.task import Carries, Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.schedule import Shape
from fedivon_app.core.search_range import even_range, log_range, search
from fedivon_app.core.settings import AnySettings


class FedIvonSettings(IvonSettings):
    """FedIvon's own values (Pal et al. 2025, Table 6).

    Mirrored samples, which are not in the paper, cost less and teach the same.
    """

    learning_rate: float = Field(
        0.1,
        gt=0,
        description="in the first round",
        json_schema_extra=search(log_range(0.01, 1.0, rescale_lr=True), log_range(1e-4, 0.1)),
    )
    final_learning_rate: float | None = Field(
        0.01, gt=0, description="at the last round; none: the same as at the first"
    )
    schedule: Shape = Field(
        "linear", description="how the rate falls from the first to the final one"
    )
    antithetic: bool = Field(
        True,
        description="every second sample mirrors the one before, for half the random numbers",
    )


class FedIvonClient(IvonTrainer[FedIvonSettings, MergeSettings]):
    """FedIvon's client (Pal et al. 2025, Algorithm 1): IVON from the server's mean and hessian.

    Its momentum is fresh. With `start: mean` the hessian begins at hess_init in every round, as
    some merges need it.
    """

    settings_type: ClassVar[type[ClientSettings]] = FedIvonSettings

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        optimizer = self.ivon(
            task,
            ess=client.ess,
            weight_decay=client.weight_decay,
            hess_init=client.hessian_of(start.posterior, client.ess),
            precision=start.posterior.known_precision if client.start == "posterior" else None,
        )
        return Learned(self.descend(optimizer, task))


class PersonalIvonSettings(IvonSettings):
    """FedIvon's for personal models, where the server's posterior is the prior."""

    start: Literal["posterior"] = "posterior"
    beta: float = Field(
        1.0,
        ge=0,
        description="weight of the divergence from the server's posterior; 0: local training",
        json_schema_extra=search(log_range(0.01, 10.0)),
    )
    prior_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="of the server's precision in the prior; the rest is that of the weight decay",
        json_schema_extra=search(even_range(0.0, 1.0)),
    )


class PersonalIvonClient(IvonTrainer[PersonalIvonSettings, MergeSettings]):
    """FedIvon's personalised client (Pal et al. 2025, Eq. 8).

    Its posterior is its PM, and what the server merges. It minimises
    ess E[loss] + beta KL(q || N(m, 1/s_p)), which is IVON with ess/beta and this prior; m is the
    server's mean, s_p = prior_share s + (1 - prior_share) ess weight_decay with s the server's
    precision. Training starts at the server's posterior. With beta = 0 the server has no say: IVON
    goes on from the client's own PM, with weight decay.

    `rescale_lr` multiplies the rate by hess_init + weight_decay here too: by the prior's precision
    instead, large as it may be, the pull towards the prior would overshoot.
    """

    settings_type: ClassVar[type[ClientSettings]] = PersonalIvonSettings
    carries = Carries.MODEL

    @classmethod
    def carried(cls, settings: AnySettings) -> Carries:
        """Return what clients carry: without the server's pull they go on from their own models."""
        client = settings.client
        alone = isinstance(client, PersonalIvonSettings) and client.beta == 0
        return super().carried(settings) | (Carries.TRAINING if alone else Carries.NOTHING)

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        server = start.posterior
        if client.beta == 0:
            return self.train_alone(server, task)
        floor = client.ess * client.weight_decay
        share = client.prior_share
        prior = Posterior(server.mean, share * server.known_precision + (1 - share) * floor)
        ess = client.ess / client.beta
        typical = client.hessian_of(server, ess)
        scale = typical + client.weight_decay if client.rescale_lr else 1
        optimizer = self.ivon(
            task,
            ess=ess,
            prior=prior,
            hess_init=typical,
            lr=task.learning_rate * scale,
            rescale_lr=False,
            precision=server.known_precision,
        )
        return Learned(self.descend(optimizer, task))

    def train_alone(self, server: Posterior, task: Task) -> Learned:
        """Go on from the client's own PM, or in its first round from the server's posterior."""
        client = self.settings.client
        begin = server
        if (own := task.personal) is not None:
            begin = own.posterior
            self.flat.load(begin.mean)
            self.flat.load_buffers(own.buffers)
        optimizer = self.ivon(
            task,
            ess=client.ess,
            weight_decay=client.weight_decay,
            hess_init=client.hessian_of(begin, client.ess),
            precision=begin.known_precision,
        )
        return Learned(self.descend(optimizer, task))
