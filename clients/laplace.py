"""Clients that learn a point and say how sure they are of it by its curvature: Laplace's approximation."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedivon_app.clients.base import Task
from fedivon_app.clients.duals import Duals
from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.laplace import Curvature, curvature_diagonal
from fedivon_app.core.posterior import Posterior


class LaplaceSettings(PointSettings):
    curvature: Curvature = Field("ggn", description="see core/laplace.py")


class LaplaceTrainer(PointClient):
    """What they share: the curvature of the summed loss at the weights that were found."""

    def curvature(self, task: Task) -> np.ndarray:
        mean = curvature_diagonal(
            self.flat, task.inputs, task.labels, self.settings.client.curvature
        )
        return mean.cpu().numpy().astype(np.float64) * len(task.labels)

    def tie(self, pull: np.ndarray, precision: np.ndarray) -> None:
        """Adds pull + precision theta to the gradient of the mean loss."""
        slope, shift = (self.flat.checked(x.astype(np.float32)) for x in (precision, pull))
        self.penalty = lambda theta: slope * theta + shift


class FedLaplaceSettings(LaplaceSettings):
    prior_strength: float = Field(
        1.0, gt=0, description="how much of the server's precision counts as the prior's"
    )
    first_precision: float = Field(1.0, gt=0, description="of every weight before round 1")

    @property
    def initial_precision(self) -> float:
        return self.first_precision


class FedLaplaceClient(LaplaceTrainer):
    """FedLaplace's client (Liu et al. 2024, online Laplace approximation):

    the maximum of sum loss + strength/2 (theta - m)^T s (theta - m) under the server's N(m, 1/s); its precision is the
    curvature there plus strength s.
    """

    Settings = FedLaplaceSettings

    def train(self, start: Payload, task: Task) -> Posterior:
        server = start.posterior
        prior = self.settings.client.prior_strength * server.precision.astype(np.float64)
        self.tie(-prior * server.mean / len(task.labels), prior / len(task.labels))
        point = super().train(start, task)
        return Posterior(point.mean, self.curvature(task) + prior)


class FedLapCovClient(LaplaceTrainer):
    """FedLap-Cov's client (Swaroop et al. 2025): PVI's step with Laplace's approximation, duals (v, u):

    the minimum of sum loss + <v, theta> - <u theta, theta>/2 + (theta - m)^T s (theta - m)/2; its precision is the
    curvature there plus s - u; then the dual step in natural parameters.
    """

    Settings = LaplaceSettings
    remembers = True

    def train(self, start: Payload, task: Task) -> Posterior:
        rho = self.settings.merge.rho
        size = len(task.labels)
        duals = Duals(start.posterior, task, self.settings.merge)
        self.metrics["bounded_duals"] = duals.num_bounded
        tie = rho * duals.server.precision.astype(np.float64)
        cavity = tie - duals.u
        self.tie((duals.v - tie * duals.server.mean) / size, cavity / size)
        point = super().train(start, task)
        posterior = Posterior(point.mean, (self.curvature(task) + cavity) / rho)
        duals.step(posterior)
        return posterior
