"""pFedMe's client."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.clients.task import Carries, Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import log_range, search


class PFedMeSettings(PointSettings):
    """pFedMe's two rates, its pull, and its inner steps."""

    optimizer: Literal["adam", "sgd"] = Field("sgd", description="of the personal point")
    optimizer_state: Literal["fresh"] = "fresh"
    learning_rate: float = Field(
        0.005,
        gt=0,
        description="eta: w moves by eta proximal (theta - w) a minibatch",
        json_schema_extra=search(log_range(5e-4, 0.1)),
    )
    personal_learning_rate: float = Field(
        0.09,
        gt=0,
        description="of the personal point theta; no schedule changes it",
        json_schema_extra=search(log_range(1e-4, 0.03, optimizer="adam"), log_range(0.003, 0.5)),
    )
    proximal: float = Field(
        15.0,
        gt=0,
        description="lambda: pull of theta towards w",
        json_schema_extra=search(log_range(0.5, 50.0)),
    )
    inner_steps: int = Field(5, ge=1, description="K, of theta on each minibatch")


class PFedMeClient(PointClient[PFedMeSettings, MergeSettings]):
    """pFedMe's client (T Dinh et al. 2020, Algorithm 1), w and theta from the server's point.

    For every minibatch K steps of theta on loss + lambda/2 |theta - w|^2, from where it is; then
    w <- w - eta lambda (w - theta), a step on the loss' Moreau envelope. The PM is theta, as the
    client's last round left it; w is what the server averages.
    """

    settings_type: ClassVar[type[ClientSettings]] = PFedMeSettings
    carries = Carries.MODEL | Carries.TRAINING

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        theta = self.flat.vector
        envelope = theta.clone()
        optimizer = self.optimizer(replace(task, learning_rate=client.personal_learning_rate))
        for inputs, labels in task.batches():
            for _ in range(client.inner_steps):
                loss = task.loss(self.flat.module(inputs), labels)
                self.step(optimizer, loss, anchor=envelope)
            envelope.lerp_(theta, task.learning_rate * client.proximal)
        return Learned(
            Posterior(envelope.cpu().numpy()),
            personal=Payload(Posterior(self.flat.mean()), self.flat.buffers),
        )
