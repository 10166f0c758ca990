"""`make bench`: how fast the hot paths are, each beside what it replaces, in one process.

Timings on a busy machine are noisy: rivals take turns, the median of each counts, and the ratios are what to read.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import ivon
import numpy as np
import psutil
import torch
from torch import nn

from fedivon_app.clients.base import Task
from fedivon_app.clients.fedavg import PointClient
from fedivon_app.clients.fedivon import IvonClient
from fedivon_app.clients.flipout import VariationalClient
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.ivon import IVON
from fedivon_app.core.models import build
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict
from fedivon_app.core.settings import Settings, compose
from fedivon_app.datasets.loading import Partition
from fedivon_app.datasets.sources import load
from fedivon_app.federation.local_federation import Federation
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.aggregation import RULES, aggregate


def contest(rivals: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Median milliseconds of each rival; they take turns, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(turns + 1):
        for name, run in rivals.items():
            began = time.perf_counter()
            run()
            if turn:
                times[name].append(1e3 * (time.perf_counter() - began))
    return {name: float(np.median(values)) for name, values in times.items()}


def show(title: str, result: dict[str, float]) -> None:
    first = next(iter(result.values()))
    cells = [f"{name} {value:.3g} ms" for name, value in result.items()]
    ratios = [f"{first / value:.2f} of {name}" for name, value in list(result.items())[1:]]
    print(f"{title:<52} {', '.join(cells)}: {', '.join(ratios)}", flush=True)


NETWORKS = {  # three sizes of the two-convolution network
    "lenet 16-32-128 on 28x28x1": ((28, 28, 1), {}),
    "lenet 32-64-256 on 32x32x3": ((32, 32, 3), {"channels": (32, 64), "hidden": 256}),
    "lenet 64-128-512 on 32x32x3": ((32, 32, 3), {"channels": (64, 128), "hidden": 512}),
}


def optimizer_steps(name: str) -> tuple[int, dict[str, float]]:
    """The network's size, and one step of each optimizer on it, without the forward and backward pass.

    Two steps are taken in a turn: mirrored samples come in pairs.
    """
    shape, options = NETWORKS[name]

    def network() -> nn.Module:
        return build("lenet", shape, 10, **options)

    def stepper(
        make: Callable[[nn.Module], torch.optim.Optimizer], sampled: bool
    ) -> Callable[[], None]:
        module = network()
        optimizer = make(module)
        gradients = [torch.randn_like(p) for p in module.parameters()]

        def put() -> None:
            for p, gradient in zip(module.parameters(), gradients, strict=True):
                if p.grad is None:
                    p.grad = gradient

        def two_steps() -> None:
            for _ in range(2):
                with optimizer.sampled_params(train=True) if sampled else nullcontext():
                    put()
                optimizer.step()

        return two_steps

    rivals = {
        "IVON": stepper(
            lambda m: IVON(m.parameters(), lr=0.1, ess=5000, antithetic=True), True
        ),  # as fedivon ships it
        "IVON, independent samples": stepper(
            lambda m: IVON(m.parameters(), lr=0.1, ess=5000), True
        ),
        "ivon-opt": stepper(lambda m: ivon.IVON(m.parameters(), lr=0.1, ess=5000), True),
        "Adam": stepper(lambda m: torch.optim.Adam(m.parameters()), False),
        "fused Adam": stepper(lambda m: torch.optim.Adam(m.parameters(), fused=True), False),
    }
    times = {name: pair / 2 for name, pair in contest(rivals, 25).items()}
    return sum(p.numel() for p in network().parameters()), times


def random_pictures(folder: Path, shape: tuple[int, ...], train: int = 12000) -> Path:
    """A data set of noise in the npz format."""
    rng = np.random.default_rng(0)
    path = folder / f"noise-{shape[0]}.npz"
    parts = {"train": train, "test": 1000}
    arrays = {f"x_{part}": rng.integers(0, 256, (n, *shape), np.uint8) for part, n in parts.items()}
    np.savez(path, **arrays, **{f"y_{part}": rng.integers(0, 10, n) for part, n in parts.items()})
    return path


class PlainAdamClient(PointClient):
    """FedAvg's client with torch's default Adam in place of the fused one that is shipped."""

    def optimizer(
        self, task: Task, weights: list[torch.nn.Parameter] | None = None
    ) -> torch.optim.Optimizer:
        client = self.settings.client
        parameters = self.flat.module.parameters()
        return torch.optim.Adam(parameters, task.learning_rate, weight_decay=client.weight_decay)


def client_rounds(folder: Path) -> dict[str, float]:
    """`fit` of a client of each kind: lenet, 64 pictures of CIFAR-10's size, 2 epochs, batch 32."""
    source = load("npz", folder, path=random_pictures(folder, (32, 32, 3), 64))
    rivals = {}
    kinds = {
        "FedIvon": (IvonClient, []),
        "FedIvon, independent samples": (IvonClient, ["client.antithetic=false"]),
        "FedAvg": (PlainAdamClient, []),
        "FedAvg, fused Adam": (PointClient, []),
        "Flipout": (VariationalClient, []),
    }
    for name, (kind, words) in kinds.items():
        settings = compose(settings_of, "cifar10-fedivon", name.split(",")[0].lower(), words)
        client = kind(settings, Partition(0, source, np.arange(64), np.arange(64)))
        arrays = client.codec.encode(_payload(settings, client.flat))
        config = {"keys": list(arrays), "round": 1, "learning-rate": settings.client.learning_rate}
        rivals[name] = lambda client=client, arrays=arrays, config=config: client.fit(
            list(arrays.values()), config
        )
    return contest(rivals, 150)


def _payload(settings: Settings, flat: Flat) -> Payload:
    return method(settings.strategy).strategy(settings).begin(flat.mean(), flat.buffers)


def merge_speed(rule: str, clients: int = 20, size: int = 1_000_000) -> float:
    """GB of posteriors merged a second by a rule."""
    rng = np.random.default_rng(0)
    posteriors = [
        Posterior(rng.standard_normal(size, np.float32), rng.random(size, np.float32) + 1)
        for _ in range(4)
    ]
    stream = [posteriors[k % 4] for k in range(clients)]
    weights = np.full(clients, 1 / clients)
    result = contest({"merge": lambda: aggregate(rule, stream, weights, posteriors[0])}, 5)
    return clients * size * 8 / 1e9 / (result["merge"] / 1e3)


def predictions(
    name: str, shape: tuple[int, ...], samples: int = 16, count: int = 500
) -> dict[str, float]:
    """Monte Carlo prediction beside the plain loop: load a sample, forward, softmax, add."""
    torch.manual_seed(0)
    flat = Flat(build(name, shape, 10))
    posterior = Posterior(flat.mean(), np.full(len(flat), 5000.0))
    inputs = torch.rand(count, shape[2], shape[0], shape[1])
    rng = np.random.default_rng(0)

    @torch.no_grad()
    def loop() -> None:
        total = 0
        flat.module.eval()
        for _ in range(samples):
            flat.load(posterior.sample(rng))
            total = total + flat.module(inputs).softmax(1)
        flat.load(posterior.mean)

    return contest(
        {"predict": lambda: predict(flat, posterior, inputs, samples, 0), "loop": loop}, 3
    )


def flower_rounds(folder: Path, rounds: int = 23) -> dict[str, float]:
    """Seconds a round of `flwr run` with 10 of 200 clients (lenet, 28x28, 55 pictures each)."""
    path = random_pictures(folder, (28, 28))
    words = [
        f"rounds={rounds}",
        "dataset=null",
        "data.source=npz",
        f"data.path={path}",
        f"data.root={folder}",
    ]
    words += ["data.partition=iid", "data.max_examples=55", "data.holdout=0", "evaluation.every=0"]
    words += ["evaluation.final_samples=0", "run.checkpoint_every=1000"]
    with Federation() as federation:
        config = {
            "experiment": "fmnist-fedivon",
            "runs": str(folder / "runs"),
            "set": shlex.join(words),
        }
        failure = federation.run(config, 200, show=lambda line: None)
    if failure:
        raise RuntimeError(failure)
    (metrics,) = (folder / "runs").glob("*/metrics.jsonl")
    seconds = [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()][3:]
    work = np.median([sum(s["clients"]) / (os.cpu_count() or 1) for s in seconds])
    return {
        "round": float(np.median([s["train"] for s in seconds])),
        "of it training, over all cores": float(work),
    }


Peak = dict[
    int, np.ndarray
]  # by round the most megabytes that a process had: RSS, and USS, what it alone had


def watched(config: dict[str, str], words: list[str], clients: int) -> dict[str, Peak]:
    """Runs an experiment in a simulation and looks at the memory of the server and of the largest worker meanwhile."""
    seen = [0]
    peaks = {}

    def watch() -> None:
        while not over.wait(0.2):
            for process in psutil.Process(federation.pid).children(recursive=True):
                with suppress(psutil.Error):
                    name = " ".join(process.cmdline())
                    who = (
                        "worker"
                        if "ClientAppActor" in name
                        else "server"
                        if "flwr-simulation" in name
                        else None
                    )
                    if who:
                        memory = process.memory_full_info()
                        peak = peaks.setdefault(who, {})
                        now = np.array([memory.rss, memory.uss]) / 2**20
                        peak[seen[-1]] = np.maximum(now, peak.get(seen[-1], 0))

    with Federation() as federation:
        over = threading.Event()
        watcher = threading.Thread(target=watch)
        watcher.start()
        failure = federation.run(
            config | {"set": shlex.join(words)},
            clients,
            show=lambda line: seen.append(_under_way(line, seen[-1])),
        )
        over.set()
        watcher.join()
    if failure:
        raise RuntimeError(failure)
    return peaks


def most(peak: Peak, rounds: range) -> np.ndarray:
    return np.max([both for number, both in peak.items() if number in rounds], axis=0)


def memory_of_rounds(folder: Path, clients: int, rounds: int = 30) -> dict[str, str]:
    """Megabytes that the server and the largest worker have for themselves, at most, in a round with 10 of the clients.

    All of them keep a personal model of 0.6 MB; the first rounds and the last ones are to show whether that adds up.
    """
    words = [
        f"data.clients={clients}",
        "clients_per_round=10",
        "train_all_clients=false",
        f"rounds={rounds}",
    ]
    words += [
        "dataset=null",
        "data.source=npz",
        f"data.path={random_pictures(folder, (28, 28))}",
        "data.partition=iid",
    ]
    words += [
        f"data.root={folder}",
        "evaluation.every=0",
        "evaluation.clients_every=0",
        "evaluation.final_samples=0",
    ]
    words += ["run.client_state=run"]
    config = {"experiment": "fmnist-personal-50", "strategy": "fedivon-personal"}
    peaks = watched(config | {"runs": str(folder / f"runs-{clients}")}, words, clients)
    spans = {
        "first": range(1, 8),
        "then": range(8, rounds - 2),
    }  # the last ones are beside the end of the run
    return {
        who: ", ".join(f"{name} {most(peak, span)[1]:.0f} MB" for name, span in spans.items())
        for who, peak in peaks.items()
    }


def load_of_rounds(
    folder: Path, rounds: int = 10, clients: int = 1000, sampled: int = 100
) -> list[str]:
    """The server's memory, in tens of rounds, with 100 of 1000 clients a round and a network of P = 1e6 parameters.

    It is to stay below (clients a round + 6) x 8P bytes, Python, torch and Ray included, and not to grow.
    """
    sizes = 1000, 213
    parameters = 785 * sizes[0] + (sizes[0] + 1) * sizes[1] + (sizes[1] + 1) * 10
    words = [
        f"data.clients={clients}",
        f"clients_per_round={sampled}",
        f"rounds={rounds}",
        "dataset=null",
    ]
    words += [
        "data.source=npz",
        f"data.path={random_pictures(folder, (28, 28))}",
        f"data.root={folder}",
    ]
    words += [
        "data.partition=iid",
        "data.max_examples=8",
        "data.holdout=0",
        "client.epochs=1",
        "client.batch_size=8",
    ]
    words += ["client.learning_rate=0.001", "client.final_learning_rate=0.001", "model.name=mlp"]
    words += [
        f"model.options={json.dumps({'sizes': sizes})}",
        "evaluation.every=0",
        "evaluation.samples=0",
    ]
    words += ["evaluation.final_samples=0", "run.checkpoint_every=1000"]
    runs = folder / "runs-load"
    peak = watched({"experiment": "fmnist-fedivon", "runs": str(runs)}, words, clients)["server"]
    (metrics,) = runs.glob("*/metrics.jsonl")
    seconds = [json.loads(line)["seconds"]["train"] for line in metrics.read_text().splitlines()]
    lines = [
        f"at most {(sampled + 6) * 8 * parameters / 2**20:.0f} MB, before round 1 {peak[0][0]:.0f} MB"
    ]
    for first in range(1, rounds + 1, 10):
        last = min(first + 9, rounds)
        rss, uss = most(peak, range(first, last + 1))
        pace = float(np.median(seconds[first - 1 : last]))
        lines.append(
            f"rounds {first} to {last}: RSS {rss:.0f} MB, USS {uss:.0f} MB, {pace:.1f} s a round"
        )
    return lines


def _under_way(line: str, before: int) -> int:
    """The round that runs after this line of the log, 0 before the first."""
    found = re.match(r"round (\d+)/", line)
    return int(found[1]) + 1 if found else before or int(" clients with " in line)


def main() -> None:
    torch.set_num_threads(1)
    print("Ours first, then its rivals; then our time as a share of theirs.\n")
    for name in NETWORKS:
        size, result = optimizer_steps(name)
        show(f"optimizer step, {name} ({size:,})", result)
    with tempfile.TemporaryDirectory() as folder:
        show("client round, lenet 32x32x3", client_rounds(Path(folder)))
        speeds = "   ".join(f"{rule} {merge_speed(rule):.2f}" for rule in RULES)
        print(f"{'merge, 20 clients x 1e6 parameters, GB/s':<52} {speeds}")
        for name, shape in (
            ("mlp", (28, 28, 1)),
            ("lenet", (28, 28, 1)),
            ("lenet", (32, 32, 3)),
            ("resnet20", (32, 32, 3)),
        ):
            count = 100 if name == "resnet20" else 500
            show(
                f"16 weight samples, {name} {shape}, {count} inputs",
                predictions(name, shape, count=count),
            )
        print("flwr run, 200 clients, 10 a round ...", flush=True)
        result = flower_rounds(Path(folder))
        print(f"{'':<52} " + "   ".join(f"{name} {value:.3f} s" for name, value in result.items()))
        for clients in (50, 1000):
            result = memory_of_rounds(Path(folder), clients)
            line = "   ".join(f"{name} {value}" for name, value in sorted(result.items()))
            print(f"{f'memory, {clients} clients with personal models':<52} {line}", flush=True)
        print("load, 1000 clients, 100 a round, 1e6 parameters: the server", flush=True)
        for line in load_of_rounds(Path(folder)):
            print(f"{'':<52} {line}", flush=True)


if __name__ == "__main__":
    main()
