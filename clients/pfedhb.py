"""pFedHB's client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedivon_app.clients.meanfield import BaseHeadSettings, MeanFieldClient, Prior
from fedivon_app.clients.parts import alone, replaced
from fedivon_app.clients.task import Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Part
from fedivon_app.core.meanfield import MeanField
from fedivon_app.core.merge_settings import PFedHBMergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import log_range, search


class PFedHBSettings(BaseHeadSettings):
    """The order of the parts, and the weights of their divergences."""

    order: Literal["head-base", "base-head", "base"] = Field(
        "head-base", description="which part is learned first; base: the head is not learned"
    )
    head_kl_weight: float = Field(
        1.0,
        ge=0,
        description="of the head's divergence beside its summed loss",
        json_schema_extra=search(log_range(1e-3, 10.0)),
    )
    base_kl_weight: float = Field(
        1e-6,
        ge=0,
        description="of the base's divergence beside its mean loss",
        json_schema_extra=search(log_range(1e-8, 1e-3)),
    )


@dataclass(frozen=True, eq=False)
class _Plan:
    """How one part of the network is learned."""

    place: Part
    field: MeanField
    batches: Iterable[tuple[Tensor, Tensor]]
    rate: float
    weight: float
    loss: Literal["sum", "mean"]


class PFedHBClient(MeanFieldClient[PFedHBSettings, PFedHBMergeSettings]):
    """pFedHB's client (Thapa and Li 2025, Algorithm 1 and Eq. 10), part by part:

    E_q[NLL] + weight KL(q || server). The base starts at the server's, the head at the client's
    own, in its first round at the server's. While one part is learned the other stays as it is,
    and the weights of both are drawn. The PM is the result, as local training left it. With
    `merge.shared: base` the head does not travel: the server's is sent back as it came, and is the
    prior.
    """

    settings_type: ClassVar[type[ClientSettings]] = PFedHBSettings

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        server = start.posterior
        plans = self.plans(server, task)
        for name in client.order.split("-"):
            self.learn(plans, name, server, task)
        posterior = server
        for plan in plans.values():
            posterior = plan.field.within(posterior)
        personal = Payload(posterior, self.flat.buffers)
        if self.settings.merge.shared == "base":
            posterior = replaced(posterior, plans["head"].place, server)
        return Learned(posterior, personal=personal)

    def plans(self, server: Posterior, task: Task) -> dict[str, _Plan]:
        """Return how the head and the base are learned, from where each of them begins."""
        client = self.settings.client
        own = task.personal
        head = self.flat.part("head", client.head)
        base = self.flat.part("base", client.head)
        every = (task.inputs, task.labels)
        return {
            "head": _Plan(
                place=head,
                field=self.field(own.posterior if own else server, head),
                batches=[every] * client.head_steps,
                rate=client.head_rate(task),
                weight=client.head_kl_weight,
                loss="sum",
            ),
            "base": _Plan(
                place=base,
                field=self.field(server, base),
                batches=task.batches(),
                rate=task.learning_rate,
                weight=client.base_kl_weight,
                loss="mean",
            ),
        }

    def learn(self, plans: dict[str, _Plan], name: str, server: Posterior, task: Task) -> None:
        """Learn one part, while the other stays as it is."""
        plan = plans[name]
        other = plans["base" if name == "head" else "head"]
        if not len(plan.field):
            return
        prior = Prior(
            mean=self.flat.checked(server.mean)[plan.place],
            precision=self.flat.checked(server.known_precision)[plan.place],
            weight=plan.weight,
        )
        with alone(self.flat, plan.place):
            self.descend(
                plan.field,
                plan.batches,
                task=task,
                optimizer=self.optimizer(plan.field.parameters(), plan.rate),
                prior=prior,
                loss=plan.loss,
                drawn=[other.field],
            )
