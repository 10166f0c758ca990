"""What several end-to-end tests need: runs in a federation, their numbers, and SuperNodes that are real processes."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedivon_app.federation.local_federation import Federation, free_port
from fedivon_app.federation.superlink import BIN
from fedivon_app.runs.folder import Run


def configuration(runs: Path, experiment: str, strategy: str, *overrides: str) -> dict[str, str]:
    """The run config of a new run."""
    return {
        "experiment": experiment,
        "strategy": strategy,
        "runs": str(runs),
        "set": shlex.join(overrides),
    }


def launch(
    federation: Federation, config: dict[str, str], nodes: int, at_once: int = 1
) -> tuple[str | None, Path | None, list[str]]:
    """What made the run fail or None, the newest of the run folders, and the lines that it showed. Every client that
    trains at once with others is a process more to start."""
    lines = []
    failure = federation.run(config, nodes, cpus=os.cpu_count() / at_once, show=lines.append)
    return failure, max(Path(config["runs"]).glob("*"), default=None), lines


def resume(federation: Federation, folder: Path, nodes: int) -> None:
    failure, _, lines = launch(
        federation, {"resume": str(folder), "runs": str(folder.parent)}, nodes
    )
    assert failure is None, (failure, lines)


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
) -> subprocess.Popen:
    """A SuperNode with this folder as its home, new or another's before it."""
    folder.mkdir(exist_ok=True)
    command = [BIN / "flower-supernode", *options, "--superlink", address]
    command += ["--isolation", "subprocess", "--host", "127.0.0.1", "--port", str(free_port())]
    command += ["--node-config", node_config]
    environment = federation.environment | {"FLWR_HOME": str(folder)}
    with open(folder / "log", "w") as log:
        return subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )


def wait_for(
    condition: Callable[[], object], what: str, patience: float = 300, pause: float = 0.1
) -> None:
    limit = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < limit, f"{what} took more than {patience:g} s"
        time.sleep(pause)
