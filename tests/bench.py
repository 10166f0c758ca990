"""`make bench`: how fast the hot paths are, each beside what it replaces, in one process.

Timings on a busy machine are noisy: rivals take turns, the median of each one's CPU times counts,
and the ratios are what to read. Whole runs in Flower's simulation follow (`tests/bench_runs.py`),
and rounds of real nodes (`tests/bench_nodes.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ivon
import numpy as np
import torch
from torch import nn

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.fedavg import PointClient, PointSettings
from fedivon_app.clients.fedivon import FedIvonClient
from fedivon_app.clients.flipout import FlipoutClient
from fedivon_app.clients.task import Task
from fedivon_app.core.compose import compose
from fedivon_app.core.flat import Flat
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.ivon import IVON
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.models import build
from fedivon_app.core.network_layers import MaxPool2
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict
from fedivon_app.core.privacy import Plan, PrivateSteps
from fedivon_app.core.privacy_settings import PrivacySettings
from fedivon_app.datasets.node_data import Partition
from fedivon_app.datasets.sources import load
from fedivon_app.methods import settings_of
from fedivon_app.strategies.aggregation import RULES, aggregate
from tests.bench_nodes import rounds_of_nodes
from tests.bench_pfl import beside_pfl, pace_of
from tests.bench_runs import load_of_rounds, memory_of_rounds, random_pictures, rounds_by_engine
from tests.bench_training import show_training
from tests.bench_wire import codec_speed, coded_rounds, first_payload
from tests.contest import Run, contest, show


@dataclass(frozen=True)
class Network:
    """A network of the models by name, for ten classes of pictures."""

    name: str
    shape: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> nn.Module:
        """Return a new one."""
        return build(self.name, self.shape, 10, **self.options)

    def size(self) -> int:
        """Return the number of its parameters."""
        return sum(p.numel() for p in self.build().parameters())


NETWORKS = {  # three sizes of the two-convolution network
    "lenet 16-32-128 on 28x28x1": Network("lenet", (28, 28, 1)),
    "lenet 32-64-256 on 32x32x3": Network(
        "lenet", (32, 32, 3), {"channels": (32, 64), "hidden": 256}
    ),
    "lenet 64-128-512 on 32x32x3": Network(
        "lenet", (32, 32, 3), {"channels": (64, 128), "hidden": 512}
    ),
}


def optimizer_steps(network: Network, turns: int = 25) -> dict[str, float]:
    """Return what one step of each optimizer takes, without the forward and backward pass.

    Two steps are taken in a turn: mirrored samples come in pairs.
    """

    def ivon_steps(kind: Callable[..., Any], **options: Any) -> Run:
        module = network.build()
        optimizer = kind(module.parameters(), lr=0.1, ess=5000, **options)
        return _two_steps(module, optimizer, partial(optimizer.sampled_params, train=True))

    def adam_steps(**options: Any) -> Run:
        module = network.build()
        return _two_steps(module, torch.optim.Adam(module.parameters(), **options), nullcontext)

    rivals = {
        "IVON": ivon_steps(IVON, antithetic=True),  # as fedivon ships it
        "IVON, independent samples": ivon_steps(IVON),
        "IVON, fast noise": ivon_steps(IVON, noise="fast"),
        "IVON, fast noise in pairs": ivon_steps(IVON, noise="fast", antithetic=True),
        "IVON, faster noise": ivon_steps(IVON, noise="faster"),
        "IVON, faster noise in pairs": ivon_steps(IVON, noise="faster", antithetic=True),
        "IVON, fused": ivon_steps(IVON, noise="fused"),
        "IVON, fused in pairs": ivon_steps(IVON, noise="fused", antithetic=True),
        "ivon-opt": ivon_steps(ivon.IVON),
        "Adam": adam_steps(),
        "fused Adam": adam_steps(fused=True),
    }
    return {name: pair / 2 for name, pair in contest(rivals, turns).items()}


def _two_steps(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    sampled: Callable[[], AbstractContextManager[object]],
) -> Run:
    gradients = [torch.randn_like(p) for p in module.parameters()]

    def put() -> None:
        for p, gradient in zip(module.parameters(), gradients, strict=True):
            if p.grad is None:
                p.grad = gradient

    def two_steps() -> None:
        for _ in range(2):
            with sampled():
                put()
            optimizer.step()

    return two_steps


class PlainAdamClient(PointClient[PointSettings, MergeSettings]):
    """FedAvg's client with torch's default Adam in place of the fused one that is shipped."""

    def optimizer(
        self, task: Task, weights: list[torch.nn.Parameter] | None = None
    ) -> torch.optim.Optimizer:
        client = self.settings.client
        parameters = self.flat.module.parameters()
        return torch.optim.Adam(parameters, task.learning_rate, weight_decay=client.weight_decay)


@dataclass(frozen=True)
class Contestant:
    """A kind of client, the method whose settings it has, and overrides of them."""

    strategy: str
    kind: type[PosteriorClient[Any, Any]]
    overrides: tuple[str, ...] = ()


CONTESTANTS = {
    "FedIvon": Contestant("fedivon", FedIvonClient),
    "FedIvon, independent samples": Contestant(
        "fedivon", FedIvonClient, ("client.antithetic=false",)
    ),
    "FedIvon, fast noise": Contestant("fedivon", FedIvonClient, ("client.noise=fast",)),
    "FedIvon, faster noise": Contestant("fedivon", FedIvonClient, ("client.noise=faster",)),
    "FedIvon, fused": Contestant("fedivon", FedIvonClient, ("client.noise=fused",)),
    "FedIvon, fused, independent samples": Contestant(
        "fedivon", FedIvonClient, ("client.noise=fused", "client.antithetic=false")
    ),
    "FedAvg": Contestant("fedavg", PlainAdamClient),
    "FedAvg, fused Adam": Contestant("fedavg", PointClient),
    "Flipout": Contestant("flipout", FlipoutClient),
}


def client_rounds(folder: Path, turns: int = 150) -> dict[str, float]:
    """Return what `fit` takes a client of each kind.

    It is lenet on 64 pictures of CIFAR-10's size, 2 epochs with batches of 32.
    """
    source = load("npz", folder, path=random_pictures(folder, (32, 32, 3), 64))
    rows = np.arange(64)
    rivals: dict[str, Run] = {}
    for name, one in CONTESTANTS.items():
        settings = compose(settings_of, "cifar10-fedivon", one.strategy, one.overrides)
        client = one.kind(settings, Partition(0, source, rows, rows))
        arrays = client.codec.encode(first_payload(settings, client.flat))
        told = Instructions(round=1, learning_rate=settings.client.learning_rate)
        config = {**told.to_config(), "keys": list(arrays)}
        rivals[name] = partial(client.fit, list(arrays.values()), config)
    return contest(rivals, turns)


def merge_speed(rule: str, clients: int = 20, size: int = 1_000_000, turns: int = 5) -> float:
    """Return how many GB of posteriors a rule merges in a second."""
    rng = np.random.default_rng(0)
    posteriors = [
        Posterior(rng.standard_normal(size, np.float32), rng.random(size, np.float32) + 1)
        for _ in range(4)
    ]
    stream = [posteriors[k % 4] for k in range(clients)]
    weights = np.full(clients, 1 / clients)
    merge = partial(aggregate, rule, stream, weights, posteriors[0])
    seconds = contest({"merge": merge}, turns)["merge"] / 1e3
    return clients * size * 8 / 1e9 / seconds


def with_torchs_pooling(module: nn.Module) -> nn.Module:
    """Put torch's own pooling in the place of ours."""
    for name, part in list(module.named_modules()):
        if isinstance(part, MaxPool2):
            parent, _, child = name.rpartition(".")
            module.get_submodule(parent).register_module(child, nn.MaxPool2d(2))
    return module


def predictions(
    network: Network, samples: int = 16, count: int = 500, turns: int = 9
) -> dict[str, float]:
    """Return what Monte Carlo prediction takes beside a plain loop, with torch's pooling and ours.

    The loop loads a sample, goes forward, takes the softmax and adds it.
    """
    torch.manual_seed(0)
    ours, plain = Flat(network.build()), Flat(with_torchs_pooling(network.build()))
    posterior = Posterior(ours.mean(), np.full(len(ours), 5000.0))
    height, width, channels = network.shape
    inputs = torch.rand(count, channels, height, width)
    rng = np.random.default_rng(0)

    @torch.no_grad()
    def loop(flat: Flat) -> None:
        total = torch.zeros(count, 10)
        flat.module.eval()
        for _ in range(samples):
            flat.load(posterior.sample(rng))
            total = total + flat.module(inputs).softmax(1)
        flat.load(posterior.mean)

    asked = partial(predict, ours, posterior, inputs, samples, 0)
    rivals: dict[str, Run] = {
        "predict": asked,
        "in pairs": partial(asked, antithetic=True),
        "plain loop": partial(loop, plain),
        "loop with our pooling": partial(loop, ours),
    }
    return contest(rivals, turns)


def private_steps(network: Network, turns: int = 30) -> dict[str, float]:
    """Return the time of a private gradient of 32 examples, and that of a plain one."""
    flat = Flat(network.build())
    inputs = torch.randn(32, *network.shape).permute(0, 3, 1, 2)
    labels = torch.arange(32) % 10
    privacy = PrivacySettings(epsilon=4.0)
    plan = Plan(privacy=privacy, size=3200, batch_size=32, epochs=1, rounds=10)
    private = PrivateSteps(plan)

    def plain() -> None:
        flat.zero_gradient()
        torch.nn.functional.cross_entropy(flat.module(inputs), labels).backward()

    def noisy() -> None:
        flat.zero_gradient()
        private.backward(flat, inputs, labels)

    return contest({"private": noisy, "plain": plain}, turns)


def hot_paths(folder: Path) -> None:
    """Print what is measured in this process."""
    for network in (Network("lenet", (28, 28, 1)), Network("lenet", (32, 32, 3))):
        show(f"private gradient, lenet {network.shape}, 32 examples", private_steps(network))
    for name, network in NETWORKS.items():
        show(f"optimizer step, {name} ({network.size():,})", optimizer_steps(network))
    show("client round, lenet 32x32x3", client_rounds(folder))
    for pictures in (64, 250):
        title = f"client round over the wire, lenet, {pictures} pictures"
        show(title, coded_rounds(folder, pictures))
    speeds = "   ".join(f"{rule} {merge_speed(rule):.2f}" for rule in RULES)
    print(f"{'merge, 20 clients x 1e6 parameters, GB/s':<52} {speeds}")
    for size in (100_000, 1_000_000):
        speeds = f"change {codec_speed(size, False):.0f}   whole {codec_speed(size, True):.0f}"
        print(f"{f'compact codec, {size:,} parameters, MB/s':<52} {speeds}", flush=True)
    for network in (
        Network("mlp", (28, 28, 1)),
        Network("lenet", (28, 28, 1)),
        Network("lenet", (32, 32, 3)),
        Network("resnet20", (32, 32, 3)),
    ):
        count = 100 if network.name == "resnet20" else 500
        title = f"16 weight samples, {network.name} {network.shape}, {count} inputs"
        show(title, predictions(network, count=count))
    show_training(folder)


def whole_runs(folder: Path) -> None:
    """Print what is measured of whole simulated runs, and of real nodes."""
    print("a run, 200 clients, 10 a round, by engine ...", flush=True)
    for engine, measured in rounds_by_engine(folder).items():
        times = "   ".join(f"{name} {value:.3g}" for name, value in measured.items())
        print(f"{engine:<10} {times}", flush=True)
    print("1000 clients of 50 pictures, 50 a round, lenet, two processes each", flush=True)
    for line in beside_pfl(folder):
        print(f"{'':<52} {line}", flush=True)
    print(f"{'':<52} flower  {pace_of(folder, 'flower')}", flush=True)
    for clients in (50, 1000):
        memory = sorted(memory_of_rounds(folder, clients).items())
        line = "   ".join(f"{name} {value}" for name, value in memory)
        print(f"{f'memory, {clients} clients with personal models':<52} {line}", flush=True)
    print(
        "three nodes, TLS and keys, FedIvon on digits, 20 rounds: forked, kept, stock", flush=True
    )
    for line in rounds_of_nodes(folder / "nodes"):
        print(f"{'':<52} {line}", flush=True)
    print("load, 1000 clients, 100 a round, 1e6 parameters: the server", flush=True)
    for line in load_of_rounds(folder):
        print(f"{'':<52} {line}", flush=True)


def main() -> None:
    """Measure everything, one after the other."""
    torch.set_num_threads(1)
    print("Ours first, then its rivals; then our time as a share of theirs.\n")
    with tempfile.TemporaryDirectory() as folder:
        hot_paths(Path(folder))
        whole_runs(Path(folder))


if __name__ == "__main__":
    main()
