"""A method: clients that step by the sign of their gradient, merged by the median.

`METHOD` is what the settings name: `strategy: own_method.method:METHOD`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.task import Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import Method
from fedivon_app.strategies.base import PosteriorMergeSettings, PosteriorStrategy, RuleName


class MedianMergeSettings(PosteriorMergeSettings):
    """The usual settings of a merge, with another rule where none is named."""

    rule: RuleName = Field("own_method.rules:Median", description="aggregation rule")


class MedianServer(PosteriorStrategy[MedianMergeSettings]):
    """A server that has nothing of its own but its rule."""

    settings_type: ClassVar[type[MergeSettings]] = MedianMergeSettings


class SignSettings(ClientSettings):
    """The settings of the client, under `client` as those of every other."""

    learning_rate: float = Field(0.003, gt=0, description="how far a weight goes in a step")
    weight_decay: float = Field(0.0, ge=0)


class SignClient(PosteriorClient[SignSettings, MergeSettings]):
    """A client of signSGD (Bernstein et al. 2018): theta <- theta - rate sign(gradient)."""

    settings_type: ClassVar[type[ClientSettings]] = SignSettings

    def train(self, start: Payload, task: Task) -> Learned:
        flat = self.flat
        for inputs, labels in task.batches():
            flat.zero_gradient()
            task.loss(flat.module(inputs), labels).backward()
            with torch.no_grad():
                gradient = flat.gradient.add(flat.vector, alpha=self.settings.client.weight_decay)
                flat.vector.sub_(gradient.sign_(), alpha=task.learning_rate)
        return Learned(Posterior(flat.mean()))


METHOD = Method(strategy=MedianServer, client=SignClient)
