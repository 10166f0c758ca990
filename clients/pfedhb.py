"""pFedHB's client."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedivon_app.clients.base import Task
from fedivon_app.clients.meanfield import BaseHeadSettings, MeanFieldClient
from fedivon_app.clients.parts import alone, replaced
from fedivon_app.clients.state import recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior


class PFedHBSettings(BaseHeadSettings):
    order: Literal["head-base", "base-head", "base"] = Field(
        "head-base", description="which part is learned first; base: the head is not learned"
    )
    head_kl_weight: float = Field(
        1.0, ge=0, description="of the head's divergence beside its summed loss"
    )
    base_kl_weight: float = Field(
        1e-6, ge=0, description="of the base's divergence beside its mean loss"
    )


class PFedHBClient(MeanFieldClient):
    """pFedHB's client (Thapa and Li 2025, Algorithm 1 and Eq. 10): E_q[NLL] + weight KL(q || server), part by part.

    The base starts at the server's, the head at the client's own, in its first round at the server's. While one part is
    learned the other stays as it is, and the weights of both are drawn. The PM is the result, as local training left
    it. With `merge.shared: base` the head does not travel: the server's is sent back as it came, and is the prior.
    """

    Settings = PFedHBSettings

    def train(self, start: Payload, task: Task) -> Posterior:
        client = self.settings.client
        server = start.posterior
        parts = {name: self.flat.part(name, client.head) for name in ("head", "base")}
        own = recall_personal(task.memory) or start
        begin = {"head": own.posterior, "base": server}
        fields = {name: self.field(begin[name], part) for name, part in parts.items()}
        every = (task.inputs, task.labels)
        plans = {
            "head": (
                [every] * client.head_steps,
                client.head_rate(task),
                client.head_kl_weight,
                "sum",
            ),
            "base": (task.batches(), task.learning_rate, client.base_kl_weight, "mean"),
        }
        for name in client.order.split("-"):
            batches, rate, weight, loss = plans[name]
            field = fields[name]
            other = fields["base" if name == "head" else "head"]
            if not len(field):
                continue
            prior = tuple(
                self.flat.checked(array)[parts[name]] for array in (server.mean, server.precision)
            )
            with alone(self.flat, parts[name]):
                optimizer = self.optimizer(field.parameters(), rate)
                self.descend(field, batches, optimizer, prior, weight, loss, drawn=[other])
        posterior = server
        for field in fields.values():
            posterior = field.within(posterior)
        self.personal = Payload(posterior, self.flat.buffers)
        return (
            posterior
            if self.settings.merge.shared == "both"
            else replaced(posterior, parts["head"], server)
        )
