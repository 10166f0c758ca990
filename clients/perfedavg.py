"""Per-FedAvg's client."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedivon_app.clients.base import Task
from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior

Batch = tuple[Tensor, Tensor]


class PerFedAvgSettings(PointSettings):
    optimizer: Literal["adam", "sgd"] = "sgd"
    optimizer_state: Literal["fresh"] = "fresh"
    proximal: Literal[0] = 0
    learning_rate: float = Field(0.001, gt=0, description="beta, of the common point")
    inner_learning_rate: float = Field(0.01, gt=0, description="alpha, of a client's adaptation")
    variant: Literal["first-order", "hessian-free"] = "hessian-free"
    difference: float = Field(
        0.01, gt=0, description="delta: hessian-free's step along the gradient, to either side"
    )
    adapt_steps: int = Field(
        1, ge=0, description="of SGD with alpha from the client's point to its PM"
    )


class PerFedAvgClient(PointClient):
    """Per-FedAvg's client (Fallah et al. 2020, Algorithm 1 and section 5): it minimises f(w - alpha grad f(w)),
    its loss after a step of its own.

    The gradient of a step is g = grad f(w - alpha grad f(w; D); D'), less alpha hessian(w; D'') g where the variant is
    hessian-free, by differences of gradients on both sides of w; these see ReLU's kinks too, which no hessian does. D'
    are the round's minibatches, D and D'' others that are drawn for each step. The PM is the client's point after the
    round and `adapt_steps` such steps of its own.
    """

    Settings = PerFedAvgSettings
    personalises = True

    def train(self, start: Payload, task: Task) -> Posterior:
        flat = self.flat
        optimizer = self.optimizer(task)
        for outer in task.batches():
            here = flat.vector.clone()
            gradient = self.meta_gradient(here, draw(task), outer, draw(task))
            flat.load(here)
            flat.gradient.copy_(gradient)
            self.apply(optimizer)
        point = Posterior(flat.mean())
        buffers = flat.buffers
        for _ in range(self.settings.client.adapt_steps):
            flat.load(self.adapted(flat.vector.clone(), draw(task)))
        self.personal = Payload(Posterior(flat.mean()), flat.buffers)
        flat.load_buffers(buffers)
        return point

    def meta_gradient(self, weights: Tensor, inner: Batch, outer: Batch, third: Batch) -> Tensor:
        """Of f(w - alpha grad f(w)) at these weights, on D, D' and D''; to first order D'' has no say."""
        client = self.settings.client
        gradient = self.gradient_at(self.adapted(weights, inner), outer)
        if client.variant == "first-order":
            return gradient
        ahead, behind = (
            self.gradient_at(weights + side * client.difference * gradient, third)
            for side in (1.0, -1.0)
        )
        return gradient - client.inner_learning_rate / (2 * client.difference) * (ahead - behind)

    def adapted(self, weights: Tensor, batch: Batch) -> Tensor:
        return weights - self.settings.client.inner_learning_rate * self.gradient_at(weights, batch)

    def gradient_at(self, weights: Tensor, batch: Batch) -> Tensor:
        self.flat.load(weights)
        self.flat.zero_gradient()
        self.loss(*batch).backward()
        return self.flat.gradient.clone()


def draw(task: Task) -> Batch:
    """A minibatch from anywhere in the client's data; the order of the round's own minibatches stays as it is."""
    rows = torch.randperm(len(task.labels))[: task.batch_size].to(task.labels.device)
    return task.inputs[rows], task.labels[rows]
