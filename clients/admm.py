"""Clients of the ADMM family: they carry a dual, and are tied to the server's model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from fedivon_app.clients.duals import Duals
from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.clients.ivon import IvonTrainer, OptimizerSettings
from fedivon_app.clients.task import Carries, Learned, Task
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.duality import reference_point
from fedivon_app.core.ivon import IVON
from fedivon_app.core.merge_settings import BayesAdmmMergeSettings, FedAdmmMergeSettings
from fedivon_app.core.search_range import log_range, search


class BayesAdmmSettings(OptimizerSettings):
    """IVON's, with a temperature, and a momentum that may last."""

    start: Literal["posterior"] = "posterior"
    hess_init: float = Field(
        1.0,
        gt=0,
        description="the hessian before round 1; also scales the rate where rescale_lr",
        json_schema_extra=search(log_range(0.01, 5.0)),
    )
    temperature: float = Field(
        1.0,
        gt=0,
        description="tau: the loss counts 1/tau times",
        json_schema_extra=search(log_range(1e-3, 1.0)),
    )
    momentum: Literal["kept", "fresh"] = Field(
        "kept", description="from round to round, with its count of steps"
    )


class BayesAdmmClient(IvonTrainer[BayesAdmmSettings, BayesAdmmMergeSettings]):
    """BayesADMM's client (Moellenhoff et al. 2025, Algorithm 1, line 4, and appendix D).

    With N the number of its examples it minimises
    sum loss / tau + <v, theta> - <u theta, theta>/2 + rho KL(q || server), which is IVON with
    ess = N / (rho tau), the server's posterior as its prior and the dual times tau/N; then it takes
    the dual step. Until something is merged the prior is N(0, 1/delta) and the hessian hess_init;
    later the client begins at its prior.
    """

    settings_type: ClassVar[type[ClientSettings]] = BayesAdmmSettings
    carries = Carries.TRAINING
    coupled = frozenset({"v", "u"})

    def train(self, start: Payload, task: Task) -> Learned:
        client = self.settings.client
        merge = self.settings.merge
        duals = Duals(start.posterior, task, merge)
        share = client.temperature / task.num_examples
        optimizer = self.ivon(
            task,
            ess=1 / (merge.rho * share),
            prior=duals.server,
            dual=(share * duals.v, share * duals.u),
            precision=None if task.first else duals.server.known_precision,
        )
        keeps_momentum = client.momentum == "kept"
        if keeps_momentum and "momentum" in task.memory:
            _restore(optimizer, task.memory)
        posterior = self.descend(optimizer, task)
        return Learned(
            posterior,
            memory=_momentum(optimizer) if keeps_momentum else {},
            follow=lambda sent: duals.after(sent.posterior),
            metrics={"bounded_duals": duals.num_bounded},
        )


def _momentum(optimizer: IVON) -> dict[str, np.ndarray]:
    state = optimizer.state_dict()["state"]
    return {"momentum": state["momentum"].cpu().numpy(), "step": np.array([state["step"]])}


def _restore(optimizer: IVON, memory: Mapping[str, np.ndarray]) -> None:
    saved = optimizer.state_dict()
    saved["state"]["momentum"] = torch.from_numpy(memory["momentum"])
    saved["state"]["step"] = int(memory["step"][0])
    optimizer.load_state_dict(saved)


class FedAdmmSettings(PointSettings):
    """A point's, and how much a client's loss counts."""

    loss: Literal["sum", "share", "mean"] = Field(
        "sum",
        description="how a client counts: its summed loss / temperature, its mean loss times "
        "N_k/N, or its mean",
    )
    temperature: float = Field(
        1.0,
        gt=0,
        description="tau, with loss sum",
        json_schema_extra=search(log_range(0.01, 10.0, loss="sum")),
    )


class FedAdmmClient(PointClient[FedAdmmSettings, FedAdmmMergeSettings]):
    """Federated ADMM's client (Moellenhoff et al. 2025, Figure 2a).

    With delta = 0 on the server it is FedDyn's. It minimises c (mean loss) + <v, theta> + rho/2
    |theta - server|^2, divided by c, which is N_k/tau, N_k/N or 1 (setting `loss`); then v +=
    gamma (own - server).
    """

    settings_type: ClassVar[type[ClientSettings]] = FedAdmmSettings
    carries = Carries.TRAINING
    coupled = frozenset({"v"})

    def train(self, start: Payload, task: Task) -> Learned:
        merge = self.settings.merge
        server = reference_point(start.posterior.mean, merge.alpha, first=task.first)
        v = task.memory.get("v", np.zeros(len(self.flat)))
        share = 1 / self.loss_factor(task)
        pull = self.flat.checked((share * (v - merge.rho * server)).astype(np.float32))
        learned = self.learn(task, penalty=lambda theta: pull + share * merge.rho * theta)

        def follow(sent: Payload) -> dict[str, np.ndarray]:
            step = merge.dual_step * (sent.posterior.mean.astype(np.float64) - server)
            return {"v": v + step}

        return replace(learned, follow=follow)

    def loss_factor(self, task: Task) -> float:
        """Return c, by which the client's mean loss is multiplied."""
        client = self.settings.client
        size = task.num_examples
        factors = {
            "sum": size / client.temperature,
            "share": size / max(task.total_examples, size),
            "mean": 1.0,
        }
        return factors[client.loss]
