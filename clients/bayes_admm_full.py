"""BayesADMM's client with full covariance, for models with one linear layer."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fedivon_app.clients.base import PosteriorClient, Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.dense import Dense, Loss, dual_step, no_dual, solve_client
from fedivon_app.core.regression import Ridge, SoftmaxRegression
from fedivon_app.core.settings import ClientSettings


class DenseSettings(ClientSettings):
    epochs: int = Field(200, ge=1, description="VON's steps, each over all examples, at most")
    learning_rate: float = Field(
        0.5, gt=0, le=1, description="of a VON step; 1 solves a quadratic loss at once"
    )
    tolerance: float = Field(1e-4, gt=0, description="VON stops where a step moves less than this")
    loss: Literal["cross-entropy", "squares"] = Field(
        "cross-entropy", description="squares: logits to one-hot labels"
    )
    draws: int = Field(
        16, ge=2, multiple_of=2, description="of an example's logits, for expectations"
    )


class DenseClient(PosteriorClient):
    """BayesADMM's client with full covariance (Moellenhoff et al. 2025, appendix C.4): VON for a number of steps or
    to convergence, one step where the loss is quadratic; then the dual step. The network is only what predicts."""

    Settings = DenseSettings
    remembers = True

    def train(self, start: Payload, task: Task) -> Dense:
        client = self.settings.client
        merge = self.settings.merge
        memory = task.memory
        inputs = task.inputs.flatten(1).double().cpu().numpy()
        labels = task.labels.cpu().numpy()
        inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
        order = theta_order(inputs.shape[1], len(self.flat) // inputs.shape[1])
        server = ordered(start.posterior, order)
        v, matrix = (memory["v"], memory["V"]) if "v" in memory else no_dual(len(server))
        loss = self.local_loss(inputs, labels, len(order) // inputs.shape[1])
        options = {"step": task.learning_rate, "tolerance": client.tolerance, "most": task.epochs}
        own = solve_client(loss, server, (v, matrix), merge.rho, **options)
        more_v, more_matrix = dual_step(own, server, merge.dual_step, merge.dual_space)
        memory |= {"v": v + more_v, "V": matrix + more_matrix}
        self.loss_sum = loss.at(own.mean)[0] / len(labels)
        self.steps = 1
        return ordered(own, np.argsort(order))

    def local_loss(self, inputs: np.ndarray, labels: np.ndarray, num_classes: int) -> Loss:
        client = self.settings.client
        if client.loss == "squares":
            return Ridge(inputs, np.eye(num_classes)[labels])
        return SoftmaxRegression(inputs, labels, num_classes, client.draws, self.settings.seed)


def theta_order(features: int, classes: int) -> np.ndarray:
    """Where in the network's flat vector, weights (classes, features - 1) and then biases (classes,), stand the entries
    of Theta (features, classes), whose last row are the biases."""
    weights = np.arange(classes * (features - 1)).reshape(classes, features - 1)
    biases = classes * (features - 1) + np.arange(classes)
    return np.concatenate([weights.T.reshape(-1), biases])


def ordered(posterior: Dense, order: np.ndarray) -> Dense:
    return Dense(posterior.mean[order], posterior.precision[np.ix_(order, order)])
