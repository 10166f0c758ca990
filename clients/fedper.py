"""Clients with a common base and heads of their own: FedPer's and FedRep's."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedivon_app.clients.base import Task
from fedivon_app.clients.parts import OwnPartClient, OwnPartSettings, Part, alone
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior


class FedPerSettings(OwnPartSettings):
    head: str = Field(
        "head", description="submodule of the model that is a client's own; the base is the rest"
    )


class FedPerClient(OwnPartClient):
    """FedPer's client (Arivazhagan et al. 2019): the server's base and its own head, trained together.

    Batch norm's statistics go with the base.
    """

    Settings = FedPerSettings

    @property
    def own(self) -> Part:
        return self.flat.part("head", self.settings.client.head)


class FedRepSettings(FedPerSettings):
    epochs: int = Field(1, ge=1, description="of the base, with the head frozen")
    head_epochs: int = Field(10, ge=1, description="of the head, with the base frozen, before that")
    optimizer_state: Literal["fresh"] = "fresh"


class FedRepClient(FedPerClient):
    """FedRep's client (Collins et al. 2021, Algorithm 1): its head for the server's base, then the base for that head,
    each with an optimizer that begins anew. A model without a base has its head trained alone."""

    Settings = FedRepSettings

    def learn(self, start: Payload, task: Task) -> Posterior:
        client = self.settings.client
        for part, epochs in (("head", client.head_epochs), ("base", task.epochs)):
            with alone(self.flat, self.flat.part(part, client.head)) as weights:
                if weights:
                    self.descend(self.optimizer(task, weights), replace(task, epochs=epochs))
        return Posterior(self.flat.mean())
