"""Local training beside plain PyTorch: BayesADMM's client, in CPU time and in wall time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedivon_app.clients.admm import BayesAdmmClient
from fedivon_app.core.compose import compose
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.network import Architecture
from fedivon_app.datasets.node_data import Partition
from fedivon_app.datasets.sources import load
from fedivon_app.methods import method, settings_of
from tests.bench_runs import random_pictures

Run = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """The median milliseconds of a rival."""

    cpu: float
    wall: float


def timed(rivals: Mapping[str, Run], turns: int) -> dict[str, Times]:
    """Return the times of rivals that take turns, after one that does not count."""
    cpu: dict[str, list[float]] = {name: [] for name in rivals}
    wall: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(turns + 1):
        for name, run in rivals.items():
            began = time.perf_counter()
            began_cpu = time.process_time()
            run()
            if turn:
                cpu[name].append(1e3 * (time.process_time() - began_cpu))
                wall[name].append(1e3 * (time.perf_counter() - began))
    return {
        name: Times(cpu=float(np.median(cpu[name])), wall=float(np.median(wall[name])))
        for name in rivals
    }


@dataclass(eq=False)
class PlainBayesAdmm:
    """BayesADMM's client as one writes it down: tensor by tensor, a new one for each result.

    theta ~ N(m, 1/(ess d)), d = h + s_p/ess; then the step of the client's problem with the prior
    N(m_p, 1/s_p) and the duals (v, u), both scaled as the step takes them.
    """

    network: nn.Module
    ess: float
    rate: float
    beta1: float = 0.9
    beta2: float = 0.9998
    hess_init: float = 0.001
    prior_precision: float = 1.0
    count: int = 0
    state: list[dict[str, Tensor]] = field(default_factory=list)

    def begin(self) -> None:
        """Start at the network's weights."""
        self.count = 0
        self.state = [
            {
                "m": p.detach().clone(),
                "h": torch.full_like(p, self.hess_init),
                "g": torch.zeros_like(p),
                "m_p": torch.zeros_like(p),
                "wd": torch.full_like(p, self.prior_precision / self.ess),
                "v": torch.zeros_like(p),
                "u": torch.zeros_like(p),
            }
            for p in self.network.parameters()
        ]

    def step(self, inputs: Tensor, labels: Tensor) -> None:
        """Take one step on a minibatch."""
        with torch.no_grad():
            for p, at in zip(self.network.parameters(), self.state, strict=True):
                sigma = 1 / torch.sqrt(self.ess * (at["h"] + at["wd"]))
                p.copy_(at["m"] + sigma * torch.randn_like(p))
        self.network.zero_grad()
        nn.functional.cross_entropy(self.network(inputs), labels).backward()
        self.count += 1
        with torch.no_grad():
            for p, at in zip(self.network.parameters(), self.state, strict=True):
                assert p.grad is not None
                d = at["h"] + at["wd"]
                h_hat = p.grad * (p - at["m"]) * self.ess * d - at["u"]
                at["g"] = self.beta1 * at["g"] + (1 - self.beta1) * p.grad
                change = 0.5 * (1 - self.beta2) ** 2 * (at["h"] - h_hat) ** 2 / d
                at["h"] = self.beta2 * at["h"] + (1 - self.beta2) * h_hat + change
                slope = at["g"] / (1 - self.beta1**self.count)
                slope = slope + at["wd"] * (at["m"] - at["m_p"]) + at["v"] - at["u"] * at["m"]
                at["m"] = at["m"] - self.rate * slope / (at["h"] + at["wd"])

    def round(self, inputs: Tensor, labels: Tensor, epochs: int, batch_size: int) -> Tensor:
        """Train for a round, and return the precisions."""
        self.begin()
        for _ in range(epochs):
            for rows in torch.randperm(len(labels)).split(batch_size):
                self.step(inputs[rows], labels[rows])
        return torch.cat([(self.ess * (at["h"] + at["wd"])).flatten() for at in self.state])


def bayes_admm_rounds(folder: Path, pictures: int = 600, turns: int = 5) -> dict[str, Times]:
    """Return what a round takes BayesADMM's client and its plain transcription.

    It is the network and the settings of fmnist-heterogeneous-10 on pictures of noise.
    """
    words = ["data.scaling=unit"]
    settings = compose(settings_of, "fmnist-heterogeneous-10", "bayes-admm", words)
    source = load("npz", folder, path=random_pictures(folder, (28, 28, 1), pictures))
    rows = np.arange(pictures)
    client = BayesAdmmClient(settings, Partition(0, source, rows, rows), state_root=folder)
    strategy = method("bayes-admm").strategy(settings, Architecture(slices=client.flat.slices))
    arrays = client.codec.encode(strategy.begin(client.flat.mean(), client.flat.buffers))
    told = Instructions(round=1, learning_rate=settings.client.learning_rate, first=True)
    config = {**told.to_config(), "keys": list(arrays)}
    ours = partial(client.fit, list(arrays.values()), config)
    inputs, labels = client.examples("train", rows)
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.Sigmoid(), nn.Linear(200, 100), nn.Sigmoid()
    )
    network.append(nn.Linear(100, 10))
    ess = pictures / (settings.merge.rho * settings.client.temperature)
    plain = PlainBayesAdmm(network, ess=ess, rate=settings.client.learning_rate)
    epochs = settings.client.epochs
    batch_size = settings.client.batch_size
    theirs = partial(plain.round, inputs, labels, epochs=epochs, batch_size=batch_size)
    return timed({"BayesADMM": ours, "plain PyTorch": theirs}, turns)
