"""Rounds of real nodes for `make bench`: three of them, TLS and keys on, stock and ours in turn."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

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


@dataclass(frozen=True)
class Rounds:
    """What the rounds of a run took: seconds each, and CPU seconds of nodes and server in all."""

    seconds: list[float]
    nodes_cpu: float
    server_cpu: float

    @property
    def messages(self) -> int:
        """How many messages the nodes have answered: one a round, and the roll call."""
        return len(NAMES) * (len(self.seconds) + 1)


class Nodes:
    """A federation with three nodes of one kind."""

    def __init__(self, stack: ExitStack, root: Path, mode: Mode):
        self.sites = Sites(stack, root, NAMES, modes=dict.fromkeys(NAMES, mode))
        wait_for(self._there, "the nodes")

    def _there(self) -> bool:
        online = [site for site in sites_of(self.sites.federation) if site.status == "online"]
        return len(online) == len(NAMES)

    def run(self, rounds: int, *words: str) -> Rounds:
        """Run FedIvon on the digits for so many rounds."""
        before = self._cpu()
        with tempfile.TemporaryDirectory() as folder:
            overrides = [*SMALL, f"rounds={rounds}", *words]
            config = {"experiment": "demo", "strategy": "fedivon", "runs": folder}
            end = self.sites.federation.run(
                config | {"set": shlex.join(overrides)}, show=lambda line: None
            )
            if end.failed:
                raise RuntimeError(end.text)
            (run,) = Path(folder).iterdir()
            records: list[dict[str, Any]] = list(Run.open(run).metrics())
        after = self._cpu()
        return Rounds(
            seconds=[record["seconds"]["train"] for record in records],
            nodes_cpu=after[0] - before[0],
            server_cpu=after[1] - before[1],
        )

    def _cpu(self) -> tuple[float, float]:
        """Return the CPU seconds of all nodes, and of the server, with what came of them."""
        nodes = sum(cpu_seconds(node.pid) for node in self.sites.nodes.values())
        return nodes, cpu_seconds(self.sites.federation.pid)


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, of those that came of it, and of those that ended."""
    total = 0.0
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def rounds_of_nodes(folder: Path, rounds: int = 20, turns: int = 2) -> list[str]:
    """Return what rounds take with stock nodes and with ours, as lines of text.

    The kinds take turns, each with a federation of its own which has nothing to do meanwhile.
    """
    taken: dict[Mode, list[Rounds]] = {mode: [] for mode in Mode}
    with ExitStack() as stack:
        kinds = {}
        for mode in Mode:
            (folder / mode).mkdir()
            kinds[mode] = Nodes(stack, folder / mode, mode)
        for _ in range(turns):
            for mode, nodes in kinds.items():
                taken[mode].append(nodes.run(rounds // turns))
    lines = []
    for mode, several in taken.items():
        seconds = [one for run in several for one in run.seconds]
        messages = sum(run.messages for run in several)
        count = len(seconds)
        lines.append(
            f"{mode:<7} a round {np.median(seconds):.2f} s ({min(seconds):.2f} to "
            f"{max(seconds):.2f}), CPU a message {sum(r.nodes_cpu for r in several) / messages:.2f}"
            f" s at the node, {sum(r.server_cpu for r in several) / count:.2f} s a round at the "
            "server"
        )
    return lines


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print("\n".join(rounds_of_nodes(Path(place))))
