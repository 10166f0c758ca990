"""BayesADMM's client with full covariance, for models with one linear layer."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.task import Carries, Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.dense import Dense, Loss, dual_step, no_dual, solve_client
from fedivon_app.core.merge_settings import FullBayesAdmmMergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.regression import Ridge, SoftmaxRegression
from fedivon_app.core.search_range import log_range, search


class FullBayesAdmmSettings(ClientSettings):
    """VON's, on all of a client's examples at once."""

    epochs: int = Field(200, ge=1, description="VON's steps, each over all examples, at most")
    learning_rate: float = Field(
        0.5,
        gt=0,
        le=1,
        description="of a VON step; 1 solves a quadratic loss at once",
        json_schema_extra=search(log_range(0.005, 1.0)),
    )
    tolerance: float = Field(1e-4, gt=0, description="VON stops where a step moves less than this")
    loss: Literal["cross-entropy", "squares"] = Field(
        "cross-entropy", description="squares: logits to one-hot labels"
    )
    draws: int = Field(
        16, ge=2, multiple_of=2, description="of an example's logits, for expectations"
    )


class FullBayesAdmmClient(PosteriorClient[FullBayesAdmmSettings, FullBayesAdmmMergeSettings]):
    """BayesADMM's client with full covariance (Moellenhoff et al. 2025, appendix C.4).

    It takes VON's steps up to a number or to convergence, one step where the loss is quadratic;
    then the dual step. The network is only what predicts.
    """

    settings_type: ClassVar[type[ClientSettings]] = FullBayesAdmmSettings
    carries = Carries.TRAINING
    coupled = frozenset({"v", "V"})
    predicts_numbers = False

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        merge = self.settings.merge
        inputs = task.inputs.flatten(1).double().cpu().numpy()
        inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
        labels = task.labels.cpu().numpy()
        features = inputs.shape[1]
        order = theta_order(features, len(self.flat) // features)
        server = ordered(start.posterior, order)
        v, matrix = no_dual(len(server))
        if "v" in task.memory:
            v = task.memory["v"]
            matrix = task.memory["V"]
        loss = self.local_loss(inputs, labels, len(order) // features)
        own = solve_client(
            loss,
            server,
            (v, matrix),
            merge.rho,
            step=task.learning_rate,
            tolerance=client.tolerance,
            most=task.epochs,
        )
        more_v, more_matrix = dual_step(own, server, merge.dual_step, merge.dual_space)
        task.losses.add(loss.at(own.mean)[0] / len(labels))
        return Learned(
            ordered(own, np.argsort(order)), memory={"v": v + more_v, "V": matrix + more_matrix}
        )

    def local_loss(self, inputs: np.ndarray, labels: np.ndarray, num_classes: int) -> Loss:
        """Return the client's loss as a function of the weights."""
        client = self.settings.client
        if client.loss == "squares":
            return Ridge(inputs, np.eye(num_classes)[labels])
        return SoftmaxRegression(
            inputs, labels, num_classes, draws=client.draws, seed=self.settings.seed
        )


def theta_order(features: int, classes: int) -> np.ndarray:
    """Return where in the network's flat vector the entries of Theta stand.

    The flat vector has weights (classes, features - 1) and then biases (classes,). Theta is
    (features, classes), and its last row are the biases.
    """
    weights = np.arange(classes * (features - 1)).reshape(classes, features - 1)
    biases = classes * (features - 1) + np.arange(classes)
    return np.concatenate([weights.T.reshape(-1), biases])


def ordered(posterior: Posterior, order: np.ndarray) -> Dense:
    """Return a full-covariance posterior with its coordinates in another order."""
    return Dense(posterior.mean[order], posterior.known_precision[np.ix_(order, order)])
