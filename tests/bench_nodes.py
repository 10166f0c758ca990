"""Rounds of real nodes for `make bench`: three of them, TLS and keys on, stock and ours in turn.

`python -m tests.bench_nodes` measures them alone.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from fedivon_app.federation.sites import sites_of
from fedivon_app.node.warm import Mode
from fedivon_app.runs.folder import Run
from tests.e2e.helpers import wait_for
from tests.e2e.sites import Sites

NAMES = ["clinic-0", "clinic-1", "clinic-2"]
SMALL = [
    "data.clients=3",
    "clients_per_round=3",
    "evaluation.every=0",
    "evaluation.clients_every=0",
    "evaluation.final_samples=0",
    "run.checkpoint_every=1000",
    "server.node_timeout=300",
]
E2E = Path(__file__).parent / "e2e"
WIDE = [900, 1000]  # layers of a network with 969,510 parameters; the usual one has 34,110
ONE_STEP = ["data.max_examples=8", "client.epochs=1", "client.batch_size=8", "wire.codec=raw"]
MUCH = 8 * 969_510 / 1e6  # megabytes of a posterior
LITTLE = 8 * 34_110 / 1e6


@dataclass(frozen=True)
class Rounds:
    """What the rounds of a run took.

    Seconds of each round, and CPU seconds of all nodes and of the server.
    """

    seconds: list[float]
    nodes_cpu: float
    server_cpu: float

    @property
    def median(self) -> float:
        """The seconds of the round in the middle."""
        return float(np.median(self.seconds))

    @property
    def node_cpu(self) -> float:
        """CPU seconds of a node for a message: one a round, and the roll call."""
        return self.nodes_cpu / (len(NAMES) * (len(self.seconds) + 1))

    def __add__(self, other: Rounds) -> Rounds:
        return Rounds(
            seconds=self.seconds + other.seconds,
            nodes_cpu=self.nodes_cpu + other.nodes_cpu,
            server_cpu=self.server_cpu + other.server_cpu,
        )

    def __str__(self) -> str:
        return (
            f"a round {self.median:.2f} s ({min(self.seconds):.2f} to {max(self.seconds):.2f}), "
            f"CPU {self.node_cpu:.2f} s a message at the node, "
            f"{self.server_cpu / len(self.seconds):.2f} s a round at the server"
        )


class Nodes:
    """A federation with three nodes of one kind."""

    def __init__(self, stack: ExitStack, root: Path, mode: Mode):
        root.mkdir(parents=True, exist_ok=True)
        self.sites = Sites(stack, root, NAMES, modes=dict.fromkeys(NAMES, mode))
        wait_for(self._there, "the nodes")

    def _there(self) -> bool:
        online = [site for site in sites_of(self.sites.federation) if site.status == "online"]
        return len(online) == len(NAMES)

    def run(self, rounds: int, *words: str) -> Rounds:
        """Run FedIvon on the digits for so many rounds."""
        nodes_before = self._nodes_cpu()
        server_before = cpu_seconds([self.sites.federation.pid])
        with tempfile.TemporaryDirectory() as folder:
            overrides = [*SMALL, f"rounds={rounds}", *words]
            config = {"experiment": "demo", "strategy": "fedivon", "runs": folder}
            config |= {"set": shlex.join(overrides)}
            end = self.sites.federation.run(config, show=lambda line: None)
            if end.failed:
                raise RuntimeError(end.text)
            (run,) = Path(folder).iterdir()
            seconds: list[dict[str, Any]] = [one["seconds"] for one in Run.open(run).metrics()]
        return Rounds(
            seconds=[one["train"] for one in seconds],
            nodes_cpu=self._nodes_cpu() - nodes_before,
            server_cpu=cpu_seconds([self.sites.federation.pid]) - server_before,
        )

    def _nodes_cpu(self) -> float:
        return cpu_seconds(node.pid for node in self.sites.nodes.values())


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes, of those that came of them, and of those that ended."""
    total = 0.0
    for pid in pids:
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
    return total


def rounds_of_nodes(folder: Path, rounds: int = 20, turns: int = 2) -> Iterator[str]:
    """Give what rounds take with stock nodes and with ours, as lines of text.

    The kinds take turns, each with a federation of its own, which has nothing to do meanwhile. Then
    the process of a client is killed in the second of three rounds, and a model of a million
    parameters is sent, beside the small one.
    """
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PYTHONPATH", str(E2E), os.pathsep)  # where the network that kills is found
        patch.setenv("OMP_NUM_THREADS", "1")
        kinds = {mode: Nodes(stack, folder / mode, mode) for mode in Mode}
        taken: dict[Mode, list[Rounds]] = {mode: [] for mode in Mode}
        for _ in range(turns):
            for mode, nodes in kinds.items():
                taken[mode].append(nodes.run(rounds // turns))
        for mode, several in taken.items():
            yield f"{mode:<7} {sum(several[1:], several[0])}"
        for mode in (Mode.FORK, Mode.STOCK):
            crashed = kinds[mode].run(3, "model.factory=crashing:mlp").seconds
            yield f"{mode:<7} a round in which a client's process is killed {crashed[1]:.2f} s"
        yield from cost_of_a_megabyte(kinds[Mode.FORK])


def cost_of_a_megabyte(nodes: Nodes, rounds: int = 8) -> Iterator[str]:
    """Give what a round takes with a posterior of 7.8 MB each way and node in place of 0.3 MB.

    Clients train for one step. A first run, in which the app is imported, does not count.
    """
    nodes.run(1, *ONE_STEP)
    small = nodes.run(rounds, *ONE_STEP)
    large = nodes.run(rounds, *ONE_STEP, f"model.options={json.dumps({'sizes': WIDE})}")
    yield f"{LITTLE:.1f} MB  {small}"
    yield f"{MUCH:.1f} MB  {large}"
    moved = 2 * (MUCH - LITTLE) * len(NAMES) * rounds
    nodes_cpu = (large.nodes_cpu - small.nodes_cpu) / moved
    server_cpu = (large.server_cpu - small.server_cpu) / moved
    yield (
        f"a MB on its way costs {1e3 * nodes_cpu:.0f} ms of CPU at the node, with that step, "
        f"and {1e3 * server_cpu:.0f} ms at the server, with the merge"
    )


def main() -> None:
    """Measure rounds of nodes, and print them."""
    with tempfile.TemporaryDirectory() as folder:
        for line in rounds_of_nodes(Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
