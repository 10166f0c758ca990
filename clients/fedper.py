"""FedPer's and FedRep's clients: a common base, and heads of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal, TypeVar

from pydantic import Field

from fedivon_app.clients.fedavg import Penalty
from fedivon_app.clients.parts import OwnPartClient, OwnPartSettings, alone
from fedivon_app.clients.task import Learned, SoFar, Task
from fedivon_app.core.client_settings import ClientSettings, HeadSettings
from fedivon_app.core.flat import Part
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.posterior import Posterior


class FedPerSettings(OwnPartSettings, HeadSettings):
    """A point's, and which part of the model is the client's own."""

    head: str = Field(
        "head", description="submodule of the model that is a client's own; the base is the rest"
    )


F = TypeVar("F", bound=FedPerSettings)


class OwnHeadClient(OwnPartClient[F, MergeSettings]):
    """A client whose own part is the head of the network."""

    @property
    def own(self) -> Part:
        return self.flat.part("head", self.settings.client.head)


class FedPerClient(OwnHeadClient[FedPerSettings]):
    """FedPer's client (Arivazhagan et al. 2019): the server's base and its own head, together.

    Batch norm's statistics go with the base.
    """

    settings_type: ClassVar[type[ClientSettings]] = FedPerSettings


class FedRepSettings(FedPerSettings):
    """FedPer's, and how long the head is learned by itself."""

    epochs: int = Field(1, ge=1, description="of the base, with the head frozen")
    head_epochs: int = Field(10, ge=1, description="of the head, with the base frozen, before that")
    optimizer_state: Literal["fresh"] = "fresh"


class FedRepClient(OwnHeadClient[FedRepSettings]):
    """FedRep's client (Collins et al. 2021, Algorithm 1), each part with a fresh optimizer.

    It learns its head for the server's base, then the base for that head. A model without a base
    has its head trained alone.
    """

    settings_type: ClassVar[type[ClientSettings]] = FedRepSettings

    def learn(
        self, task: Task, penalty: Penalty | None = None, so_far: SoFar | None = None
    ) -> Learned:
        client = self.settings.client
        for part, epochs in (("head", client.head_epochs), ("base", task.epochs)):
            with alone(self.flat, self.flat.part(part, client.head)) as weights:
                if weights:
                    optimizer = self.optimizer(task, weights)
                    self.descend(optimizer, replace(task, epochs=epochs), penalty, so_far)
        return Learned(Posterior(self.flat.mean()))
