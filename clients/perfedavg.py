"""Per-FedAvg's client."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.clients.task import Carries, Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import log_range, search
from fedivon_app.core.transfer import sent

Batch = tuple[Tensor, Tensor]


class PerFedAvgSettings(PointSettings):
    """Per-FedAvg's two rates, and how the meta-gradient is computed."""

    optimizer: Literal["adam", "sgd"] = Field("sgd", description="of the common point")
    optimizer_state: Literal["fresh"] = "fresh"
    proximal: Literal[0] = 0
    learning_rate: float = Field(
        0.001,
        gt=0,
        description="beta, of the common point",
        json_schema_extra=search(log_range(1e-4, 0.03, optimizer="adam"), log_range(1e-3, 1.0)),
    )
    inner_learning_rate: float = Field(
        0.01,
        gt=0,
        description="alpha, of a client's adaptation",
        json_schema_extra=search(log_range(1e-3, 0.1)),
    )
    variant: Literal["first-order", "hessian-free"] = Field(
        "hessian-free", description="how the meta-gradient is computed"
    )
    difference: float = Field(
        0.01, gt=0, description="delta: hessian-free's step along the gradient, to either side"
    )
    adapt_steps: int = Field(
        1, ge=0, description="of SGD with alpha from the client's point to its PM"
    )


class PerFedAvgClient(PointClient[PerFedAvgSettings, MergeSettings]):
    """Per-FedAvg's client (Fallah et al. 2020, Algorithm 1 and section 5).

    It minimises f(w - alpha grad f(w)), its loss after a step of its own. The gradient of a step
    is g = grad f(w - alpha grad f(w; D); D'), less alpha hessian(w; D'') g where the variant is
    hessian-free, by differences of gradients on both sides of w; these see ReLU's kinks too, which
    no hessian does. D' are the round's minibatches, D and D'' others that are drawn for each step.
    The PM is the client's point after the round and `adapt_steps` such steps of its own.
    """

    settings_type: ClassVar[type[ClientSettings]] = PerFedAvgSettings
    carries = Carries.MODEL | Carries.TRAINING

    def train(self, start: Payload, task: Task) -> Learned:
        flat = self.flat
        optimizer = self.optimizer(task)
        for outer in task.batches():
            here = flat.vector.clone()
            inner = draw(task)
            third = draw(task)
            gradient = self.meta_gradient(here, task, inner=inner, outer=outer, third=third)
            flat.load(here)
            flat.gradient.copy_(gradient)
            self.apply(optimizer)
        point = Posterior(flat.mean())
        buffers = flat.buffers
        for _ in range(self.settings.client.adapt_steps):
            flat.load(self.adapted(flat.vector.clone(), task, draw(task)))
        personal = Payload(Posterior(flat.mean()), flat.buffers)
        flat.load_buffers(buffers)
        return Learned(point, personal=personal)

    def meta_gradient(
        self, weights: Tensor, task: Task, *, inner: Batch, outer: Batch, third: Batch
    ) -> Tensor:
        """Return the gradient of f(w - alpha grad f(w)) at these weights, on D, D' and D''.

        To first order D'' has no say.
        """
        client = self.settings.client
        gradient = self.gradient_at(self.adapted(weights, task, inner), task, outer)
        if client.variant == "first-order":
            return gradient
        step = client.difference * gradient
        ahead = self.gradient_at(weights + step, task, third)
        behind = self.gradient_at(weights - step, task, third)
        return gradient - client.inner_learning_rate / (2 * client.difference) * (ahead - behind)

    def adapted(self, weights: Tensor, task: Task, batch: Batch) -> Tensor:
        """Return the weights after one step of the client's own."""
        rate = self.settings.client.inner_learning_rate
        return weights - rate * self.gradient_at(weights, task, batch)

    def gradient_at(self, weights: Tensor, task: Task, batch: Batch) -> Tensor:
        """Return the gradient of a minibatch's loss at these weights."""
        inputs, labels = batch
        self.flat.load(weights)
        self.flat.zero_gradient()
        task.loss(self.flat.module(inputs), labels).backward()
        return self.flat.gradient.clone()


def draw(task: Task) -> Batch:
    """Return a minibatch from anywhere in the client's data.

    The order of the round's own minibatches stays as it is.
    """
    rows = sent(torch.randperm(len(task.labels))[: task.batch_size], task.labels.device)
    return task.inputs[rows], task.labels[rows]
