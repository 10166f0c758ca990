"""Laplace's approximation: clients that are as sure of their point as its curvature says."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import numpy as np
from pydantic import Field

from fedivon_app.clients.base import M
from fedivon_app.clients.duals import Duals
from fedivon_app.clients.fedavg import Penalty, PointClient, PointSettings
from fedivon_app.clients.task import Carries, Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.laplace import Curvature, curvature_diagonal
from fedivon_app.core.merge_settings import BayesAdmmMergeSettings, MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import log_range, search


class LaplaceSettings(PointSettings):
    """A point's, and which curvature is taken."""

    curvature: Curvature = Field("ggn", description="see core/laplace.py")


L = TypeVar("L", bound=LaplaceSettings)


class LaplaceTrainer(PointClient[L, M]):
    """What they share: the curvature of the summed loss at the weights that were found."""

    def curvature(self, task: Task) -> np.ndarray:
        """Return the diagonal of the curvature of the summed loss, in float64."""
        kind = self.settings.client.curvature
        mean = curvature_diagonal(
            self.flat, task.inputs, task.labels, kind, likelihood=self.likelihood
        )
        return mean.cpu().numpy().astype(np.float64) * len(task.labels)

    def tie(self, pull: np.ndarray, precision: np.ndarray) -> Penalty:
        """Return what adds pull + precision theta to the gradient of the mean loss."""
        slope = self.flat.checked(precision.astype(np.float32))
        shift = self.flat.checked(pull.astype(np.float32))
        return lambda theta: slope * theta + shift


class FedLaplaceSettings(LaplaceSettings):
    """FedLaplace's, with how much the server's posterior counts."""

    prior_strength: float = Field(
        1.0,
        gt=0,
        description="how much of the server's precision counts as the prior's",
        json_schema_extra=search(log_range(0.01, 10.0)),
    )
    first_precision: float = Field(
        1.0,
        gt=0,
        description="of every weight before round 1",
        json_schema_extra=search(log_range(0.1, 100.0)),
    )

    def initial_precision(self, weights: np.ndarray) -> float:
        """Return the precision of every weight before round 1."""
        return self.first_precision


class FedLaplaceClient(LaplaceTrainer[FedLaplaceSettings, MergeSettings]):
    """FedLaplace's client (Liu et al. 2024, online Laplace approximation).

    It finds the maximum of sum loss + strength/2 (theta - m)^T s (theta - m) under the server's
    N(m, 1/s); its precision is the curvature there plus strength s.
    """

    settings_type: ClassVar[type[ClientSettings]] = FedLaplaceSettings

    def train(self, start: Payload, task: Task) -> Learned:
        server = start.posterior
        size = len(task.labels)
        prior = self.settings.client.prior_strength * server.known_precision.astype(np.float64)

        def so_far() -> Posterior:
            return Posterior(self.flat.mean(), self.curvature(task) + prior)

        pull = self.tie(-prior * server.mean / size, prior / size)
        learned = self.learn(task, penalty=pull, so_far=so_far)
        return Learned(so_far(), memory=learned.memory)


class FedLapCovClient(LaplaceTrainer[LaplaceSettings, BayesAdmmMergeSettings]):
    """FedLap-Cov's client (Swaroop et al. 2025): PVI's step with Laplace's approximation.

    With duals (v, u) it finds the minimum of
    sum loss + <v, theta> - <u theta, theta>/2 + (theta - m)^T s (theta - m)/2; its precision is the
    curvature there plus s - u; then it takes the dual step in natural parameters.
    """

    settings_type: ClassVar[type[ClientSettings]] = LaplaceSettings
    carries = Carries.TRAINING
    coupled = frozenset({"v", "u"})

    def train(self, start: Payload, task: Task) -> Learned:
        rho = self.settings.merge.rho
        size = len(task.labels)
        duals = Duals(start.posterior, task, self.settings.merge)
        tie = rho * duals.server.known_precision.astype(np.float64)
        cavity = tie - duals.u
        pull = (duals.v - tie * duals.server.mean) / size
        learned = self.learn(task, penalty=self.tie(pull, cavity / size))
        precision = (self.curvature(task) + cavity) / rho
        posterior = Posterior(learned.posterior.mean, precision)
        return Learned(
            posterior,
            memory=learned.memory,
            follow=lambda sent: duals.after(sent.posterior),
            metrics={"bounded_duals": duals.num_bounded},
        )
