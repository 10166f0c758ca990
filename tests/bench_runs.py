"""Whole simulated runs for `make bench`: the time and the memory that they take."""

from __future__ import annotations

import json
import os
import re
import shlex
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import psutil

from fedivon_app.federation.local_federation import Federation
from fedivon_app.federation.run_queue import Engine, Where

NO_SCORES = ["evaluation.every=0", "evaluation.final_samples=0"]


def random_pictures(folder: Path, shape: tuple[int, ...], train: int = 12000) -> Path:
    """Write a data set of noise in the npz format."""
    rng = np.random.default_rng(0)
    path = folder / f"noise-{shape[0]}.npz"
    arrays: dict[str, np.ndarray] = {}
    for part, count in (("train", train), ("test", 1000)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, *shape), np.uint8)
        arrays[f"y_{part}"] = rng.integers(0, 10, count)
    np.savez(path, allow_pickle=False, **arrays)
    return path


def data_of_noise(folder: Path) -> list[str]:
    """Return overrides for a run whose clients have pictures of noise, 28 x 28."""
    return [
        "dataset=null",
        "data.source=npz",
        f"data.path={random_pictures(folder, (28, 28))}",
        f"data.root={folder}",
        "data.partition=iid",
    ]


def seconds_by_round(runs: Path) -> list[dict[str, Any]]:
    """Return what the only run in this folder took, round by round."""
    (metrics,) = runs.glob("*/metrics.jsonl")
    return [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()]


def rounds_by_engine(folder: Path, rounds: int = 23) -> dict[str, dict[str, float]]:
    """Return what a round takes with each engine: 10 of 200 clients, lenet, 55 pictures each.

    The first three rounds do not count. What a client takes beyond its training is that of all
    cores, the server's merge included.
    """
    words = [
        f"rounds={rounds}",
        *data_of_noise(folder),
        "data.max_examples=55",
        "data.holdout=0",
        *NO_SCORES,
        "run.checkpoint_every=1000",
        "run.client_state=run",
    ]
    found = {}
    for engine in get_args(Engine):
        runs = folder / f"runs-{engine}"
        config = {"experiment": "fmnist-fedivon", "runs": str(runs), "set": shlex.join(words)}
        began = time.monotonic()
        shown: list[float] = []
        with Where(engine=engine).federation() as federation:
            end = federation.run(config, 200, show=partial(_note_round, shown))
        if end.failed:
            raise RuntimeError(end.text)
        seconds = seconds_by_round(runs)[3:]
        cores = os.cpu_count() or 1
        took = float(np.median([one["train"] for one in seconds]))
        work = float(np.median([sum(one["clients"]) for one in seconds]))
        found[engine] = {
            "first round after, s": shown[0] - began,
            "a round, s": took,
            "of it training, over all cores, s": work / cores,
            "a client beyond its training, ms": 1000 * (took * cores - work) / 10,
        }
    return found


def _note_round(times: list[float], line: str) -> None:
    if line.startswith("round "):
        times.append(time.monotonic())


@dataclass(frozen=True)
class Memory:
    """Megabytes that a process has (RSS), and those that it alone has (USS)."""

    rss: float
    uss: float

    def or_more(self, other: Memory) -> Memory:
        """Return the larger of each of both."""
        return Memory(max(self.rss, other.rss), max(self.uss, other.uss))


class Peaks:
    """The most memory that a process had, by round; round 0 is before the first."""

    def __init__(self) -> None:
        self.by_round: dict[int, Memory] = {}

    def see(self, number: int, memory: Memory) -> None:
        """Take in a look at the process in a round."""
        self.by_round[number] = memory.or_more(self.by_round.get(number, memory))

    def most(self, rounds: range) -> Memory:
        """Return the most of several rounds."""
        seen = [memory for number, memory in self.by_round.items() if number in rounds]
        return Memory(max(one.rss for one in seen), max(one.uss for one in seen))


class Watch:
    """Looks at the server of a simulation and at its workers five times a second, in a thread.

    `peaks` has the server's, and over all workers the largest worker's.
    """

    def __init__(self, pid: int):
        self.pid = pid
        self.peaks = {"server": Peaks(), "worker": Peaks()}
        self.round = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def read(self, line: str) -> None:
        """Take a line of the run's log, which tells what round runs after it."""
        if found := re.match(r"round (\d+)/", line):
            self.round = int(found[1]) + 1
        elif not self.round and " clients with " in line:
            self.round = 1

    def _look(self) -> None:
        while not self._over.wait(0.2):
            for process in psutil.Process(self.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if who := _role(process.cmdline()):
                        memory = process.memory_full_info()
                        now = Memory(memory.rss / 2**20, memory.uss / 2**20)
                        self.peaks[who].see(self.round, now)


def _role(command: list[str]) -> str | None:
    words = " ".join(command)
    if "ClientAppActor" in words:
        return "worker"
    return "server" if "flwr-simulation" in words else None


def watched(config: Mapping[str, str], words: list[str], clients: int) -> dict[str, Peaks]:
    """Run an experiment in a simulation, and return the memory of its server and largest worker."""
    whole = {**config, "set": shlex.join(words)}
    with Federation() as federation, Watch(federation.pid) as watch:
        end = federation.run(whole, clients, show=watch.read)
    if end.failed:
        raise RuntimeError(end.text)
    return watch.peaks


def memory_of_rounds(folder: Path, clients: int, rounds: int = 30) -> dict[str, str]:
    """Return the megabytes that the server and the largest worker have for themselves, at most.

    10 of the clients take part in a round, and all of them keep a personal model of 0.6 MB. The
    first rounds and the later ones are to show whether that adds up.
    """
    words = [
        f"data.clients={clients}",
        "clients_per_round=10",
        "train_all_clients=false",
        f"rounds={rounds}",
        *data_of_noise(folder),
        *NO_SCORES,
        "evaluation.clients_every=0",
        "run.client_state=run",
    ]
    config = {
        "experiment": "fmnist-personal-50",
        "strategy": "fedivon-personal",
        "runs": str(folder / f"runs-{clients}"),
    }
    peaks = watched(config, words, clients)
    then = range(8, rounds - 2)  # the last ones are beside the end of the run
    return {
        who: f"first {peak.most(range(1, 8)).uss:.0f} MB, then {peak.most(then).uss:.0f} MB"
        for who, peak in peaks.items()
    }


def load_of_rounds(
    folder: Path, rounds: int = 10, clients: int = 1000, sampled: int = 100
) -> list[str]:
    """Return the server's memory in tens of rounds, as lines of text.

    100 of 1000 clients take part in a round, with a network of P = 1e6 parameters. The memory is to
    stay below (clients a round + 6) x 8P bytes, Python, torch and Ray included, and not to grow.
    """
    wide = 1000
    narrow = 213
    parameters = 785 * wide + (wide + 1) * narrow + (narrow + 1) * 10
    words = [
        f"data.clients={clients}",
        f"clients_per_round={sampled}",
        f"rounds={rounds}",
        *data_of_noise(folder),
        "data.max_examples=8",
        "data.holdout=0",
        "client.epochs=1",
        "client.batch_size=8",
        "client.learning_rate=0.001",
        "client.final_learning_rate=0.001",
        "model.name=mlp",
        f"model.options={json.dumps({'sizes': [wide, narrow]})}",
        *NO_SCORES,
        "evaluation.samples=0",
        "run.checkpoint_every=1000",
    ]
    runs = folder / "runs-load"
    config = {"experiment": "fmnist-fedivon", "runs": str(runs)}
    peak = watched(config, words, clients)["server"]
    seconds = [one["train"] for one in seconds_by_round(runs)]
    bound = (sampled + 6) * 8 * parameters / 2**20
    lines = [f"at most {bound:.0f} MB, before round 1 {peak.by_round[0].rss:.0f} MB"]
    for first in range(1, rounds + 1, 10):
        last = min(first + 9, rounds)
        memory = peak.most(range(first, last + 1))
        pace = float(np.median(seconds[first - 1 : last]))
        lines.append(
            f"rounds {first} to {last}: "
            f"RSS {memory.rss:.0f} MB, USS {memory.uss:.0f} MB, {pace:.1f} s a round"
        )
    return lines
