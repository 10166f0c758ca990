"""Clients of the ADMM family: they carry a dual from round to round, and are tied to the server's model."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field

from fedivon_app.clients.base import Task
from fedivon_app.clients.duals import Duals
from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.clients.fedivon import IvonTrainer, OptimizerSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.ivon import IVON
from fedivon_app.core.posterior import Posterior


class BayesAdmmSettings(OptimizerSettings):
    start: Literal["posterior"] = "posterior"
    temperature: float = Field(1.0, gt=0, description="tau: the loss counts 1/tau times")
    momentum: Literal["kept", "fresh"] = Field(
        "kept", description="from round to round, with its count of steps"
    )


class BayesAdmmClient(IvonTrainer):
    """BayesADMM's client (Moellenhoff et al. 2025, Algorithm 1, line 4, and appendix D), N the number of examples:

    minimises sum loss / tau + <v, theta> - <u theta, theta>/2 + rho KL(q || server), which is IVON with
    ess = N / (rho tau), the server's posterior as its prior and the dual times tau/N; then takes the dual step. In
    round 1 the prior is N(0, 1/delta) and the hessian hess_init; later the client begins at its prior.
    """

    Settings = BayesAdmmSettings
    remembers = True

    def train(self, start: Payload, task: Task) -> Posterior:
        client = self.settings.client
        merge = self.settings.merge
        duals = Duals(start.posterior, task, merge)
        self.metrics["bounded_duals"] = duals.num_bounded
        share = client.temperature / len(task.labels)
        ess = 1 / (merge.rho * share)
        optimizer = self.ivon(
            task, ess=ess, prior=duals.server, dual=(share * duals.v, share * duals.u)
        )
        if task.server_round > 1:
            optimizer.precision = duals.server.precision
        if client.momentum == "kept" and "momentum" in task.memory:
            _restore(optimizer, task.memory)
        posterior = self.descend(optimizer, task)
        duals.step(posterior)
        if client.momentum == "kept":
            task.memory.update(_momentum(optimizer))
        return posterior


def _momentum(optimizer: IVON) -> dict[str, np.ndarray]:
    state = optimizer.state_dict()["state"]
    return {"momentum": state["momentum"].cpu().numpy(), "step": np.array([state["step"]])}


def _restore(optimizer: IVON, memory: dict[str, np.ndarray]) -> None:
    saved = optimizer.state_dict()
    saved["state"] |= {
        "momentum": torch.from_numpy(memory["momentum"]),
        "step": int(memory["step"][0]),
    }
    optimizer.load_state_dict(saved)


class FedAdmmSettings(PointSettings):
    loss: Literal["sum", "share", "mean"] = Field(
        "sum",
        description="how a client counts: its summed loss / temperature, its mean loss times N_k/N, or its mean",
    )
    temperature: float = Field(1.0, gt=0, description="tau, with loss sum")


class FedAdmmClient(PointClient):
    """Federated ADMM's client (Moellenhoff et al. 2025, Figure 2a; with delta = 0 on the server, FedDyn's):

    minimises c (mean loss) + <v, theta> + rho/2 |theta - server|^2, divided by c, which is N_k/tau, N_k/N or 1 (setting
    `loss`); then v += gamma (own - server).
    """

    Settings = FedAdmmSettings
    remembers = True

    def train(self, start: Payload, task: Task) -> Posterior:
        merge = self.settings.merge
        memory = task.memory
        server = start.posterior.mean
        v = memory.get("v", np.zeros(len(self.flat)))
        share = 1 / self.loss_factor(task)
        pull = self.flat.checked((share * (v - merge.rho * server)).astype(np.float32))
        self.penalty = lambda theta: pull + share * merge.rho * theta
        posterior = super().train(start, task)
        memory["v"] = v + merge.dual_step * (posterior.mean.astype(np.float64) - server)
        return posterior

    def loss_factor(self, task: Task) -> float:
        client = self.settings.client
        size = len(task.labels)
        return {
            "sum": size / client.temperature,
            "share": size / max(task.total_examples, size),
            "mean": 1.0,
        }[client.loss]
