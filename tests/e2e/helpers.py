"""What end-to-end tests need: runs in a federation, their numbers, and real SuperNodes."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedivon_app.federation.local_federation import Federation, free_port
from fedivon_app.federation.run_maker import RunEnd, RunMaker
from fedivon_app.federation.superlink import BIN
from fedivon_app.node.warm import Mode
from fedivon_app.runs.folder import Run

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Launched:
    """What a run came to, the newest of the run folders, and the lines that it showed."""

    end: RunEnd
    folder: Path | None
    lines: list[str]

    def completed(self) -> "Launched":
        """The same, after the run is seen not to have failed."""
        assert not self.end.failed, (self.end, self.lines)
        return self


def configuration(runs: Path, experiment: str, strategy: str, *overrides: str) -> dict[str, str]:
    """The run config of a new run."""
    return {
        "experiment": experiment,
        "strategy": strategy,
        "runs": str(runs),
        "set": shlex.join(overrides),
    }


def launch(federation: RunMaker, config: dict[str, str], nodes: int, at_once: int = 1) -> Launched:
    """Make a run; every client that trains at once with others is a process more to start."""
    lines: list[str] = []
    cpus = (os.cpu_count() or 1) / at_once
    end = federation.run(config, nodes=nodes, cpus=cpus, show=lines.append)
    folder = max(Path(config["runs"]).glob("*"), default=None)
    return Launched(end=end, folder=folder, lines=lines)


def resume(federation: Federation, folder: Path, nodes: int) -> None:
    """Go on with a run to its end."""
    launch(federation, {"resume": str(folder), "runs": str(folder.parent)}, nodes).completed()


def numbers(folder: Path) -> list[dict]:
    """The metrics without the times."""
    return [
        {k: v for k, v in record.items() if k != "seconds"} for record in Run.open(folder).metrics()
    ]


def start_node(
    federation: Federation,
    folder: Path,
    node_config: str,
    address: str,
    options: Sequence[str | Path],
    mode: Mode = Mode.FORK,
) -> subprocess.Popen:
    """A node with this folder as its home, new or another's before it."""
    folder.mkdir(exist_ok=True)
    command = [BIN / "fedivon", "node", *options, "--superlink", address]
    command += ["--isolation", "subprocess", "--host", "127.0.0.1", "--port", str(free_port())]
    command += ["--node-config", node_config]
    environment = federation.environment | {"FLWR_HOME": str(folder), "FEDIVON_NODE": mode}
    with open(folder / "log", "w") as log:
        return subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )


def wait_for(
    condition: Callable[[], object], what: str, patience: float = 300, pause: float = 0.1
) -> None:
    """Wait until the condition holds, and fail where it takes longer than that."""
    limit = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < limit, f"{what} took more than {patience:g} s"
        time.sleep(pause)
