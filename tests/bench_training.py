"""Local training and prediction beside others, in CPU time and in wall time.

python -m tests.bench_training    # these alone; `make bench` has them too
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedivon_app.clients.admm import BayesAdmmClient
from fedivon_app.core.compose import compose
from fedivon_app.core.flat import Flat
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.ivon import IVON
from fedivon_app.core.models import build
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict
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


def show_times(title: str, result: Mapping[str, Times]) -> None:
    """Print the times of rivals, and the CPU time of each as a share of the last one's."""
    print(title)
    last = list(result.values())[-1]
    for name, found in result.items():
        times = f"CPU {found.cpu:8.2f} ms   wall {found.wall:8.2f} ms"
        print(f"    {name:<32} {times}   {found.cpu / last.cpu:.2f}", flush=True)


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
    source = load("npz", folder, path=random_pictures(folder, (28, 28, 1), pictures))
    rows = np.arange(pictures)

    def client_of(*words: str) -> BayesAdmmClient:
        overrides = ["data.scaling=unit", *words]
        settings = compose(settings_of, "fmnist-heterogeneous-10", "bayes-admm", overrides)
        return BayesAdmmClient(settings, Partition(0, source, rows, rows), state_root=folder)

    def round_of(client: BayesAdmmClient) -> Run:
        settings = client.settings
        strategy = method("bayes-admm").strategy(settings, Architecture(slices=client.flat.slices))
        arrays = client.codec.encode(strategy.begin(client.flat.mean(), client.flat.buffers))
        told = Instructions(round=1, learning_rate=settings.client.learning_rate, first=True)
        config = {**told.to_config(), "keys": list(arrays)}
        return partial(client.fit, list(arrays.values()), config)

    client = client_of()
    settings = client.settings
    ours = round_of(client)
    pairs = "client.antithetic=true"
    table = "client.noise=fast"
    faster: dict[str, Run] = {
        "BayesADMM, fast noise": round_of(client_of(table)),
        "BayesADMM, faster noise": round_of(client_of("client.noise=faster")),
        "BayesADMM, fast noise in pairs": round_of(client_of(table, pairs)),
        "BayesADMM, faster noise in pairs": round_of(client_of("client.noise=faster", pairs)),
        "BayesADMM, fused": round_of(client_of("client.noise=fused")),
        "BayesADMM, fused in pairs": round_of(client_of("client.noise=fused", pairs)),
    }
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
    rivals: dict[str, Run] = {"BayesADMM": ours} | faster | {"plain PyTorch": theirs}
    return timed(rivals, turns)


@dataclass(frozen=True, eq=False)
class Model:
    """A network with its posterior, and inputs to predict."""

    flat: Flat
    posterior: Posterior
    inputs: Tensor


def trained_on_digits(steps: int = 300) -> Model:
    """Return a small convolutional network that IVON has trained on scikit-learn's digits."""
    digits = load_digits()
    inputs = torch.from_numpy(digits.images.astype(np.float32) / 16)[:, None]
    labels = torch.from_numpy(digits.target.astype(np.int64))
    torch.manual_seed(0)
    flat = Flat(build("lenet", (8, 8, 1), 10, channels=(8, 16), hidden=64))
    optimizer = IVON(
        flat.module.parameters(), lr=0.1, ess=5000, hess_init=0.5, beta2=0.999, weight_decay=1e-3
    )
    for _ in range(steps):
        rows = torch.randint(1400, (64,))
        with optimizer.sampled_params(train=True):
            nn.functional.cross_entropy(flat.module(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    return Model(flat, optimizer.posterior(), inputs[1400:])


def prediction_errors(model: Model, tries: int = 20) -> dict[str, float]:
    """Return the root mean square error of Monte Carlo predictions, by way and number of samples.

    It is the difference from what 4000 samples say.
    """

    def predicted(samples: int, seed: int, antithetic: bool) -> np.ndarray:
        return predict(
            model.flat, model.posterior, model.inputs, samples, seed, antithetic=antithetic
        )

    exact = (predicted(2000, 1, True) + predicted(2000, 2, False)) / 2
    found = {}
    for name, antithetic in (("independent", False), ("antithetic", True)):
        for samples in (8, 16, 32, 64):
            errors = [
                np.square(predicted(samples, seed, antithetic) - exact).mean()
                for seed in range(100, 100 + tries)
            ]
            found[f"{name} {samples}"] = float(np.sqrt(np.mean(errors)))
    return found


def prediction_times(model: Model, turns: int = 9) -> dict[str, Times]:
    """Return what predictions of about one error take: 16 antithetic samples, 64 independent."""
    flat = model.flat
    count = len(model.inputs)
    rng = np.random.default_rng(0)

    @torch.no_grad()
    def loop() -> None:
        total = torch.zeros(count, 10)
        flat.module.eval()
        for _ in range(64):
            flat.load(model.posterior.sample(rng))
            total = total + flat.module(model.inputs).softmax(1)
        flat.load(model.posterior.mean)

    asked = partial(predict, flat, model.posterior, model.inputs, seed=0)
    rivals: dict[str, Run] = {
        "predict, 16 antithetic": partial(asked, num_samples=16, antithetic=True),
        "predict, 64 independent": partial(asked, num_samples=64),
        "plain loop, 64 independent": loop,
    }
    return timed(rivals, turns)


def show_training(folder: Path) -> None:
    """Measure and print everything of this module."""
    show_times("a round of BayesADMM's client, 600 pictures", bayes_admm_rounds(folder))
    model = trained_on_digits()
    errors = prediction_errors(model)
    cells = "   ".join(f"{name} {error:.5f}" for name, error in errors.items())
    print(f"error of predictions on digits, by samples: {cells}", flush=True)
    show_times("predictions on digits, of about one error", prediction_times(model))


def main() -> None:
    """Measure with one thread."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        show_training(Path(folder))


if __name__ == "__main__":
    main()
