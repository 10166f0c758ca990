"""What several end-to-end tests need: runs in a federation, their numbers, and SuperNodes that are real processes."""

import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from fedivon_app.launch import Federation, end_family, free_port
from fedivon_app.runs import Run
from fedivon_app.superlink import BIN


def configuration(runs: Path, experiment: str, strategy: str, *overrides: str) -> dict[str, str]:
    """The run config of a new run."""
    return {"experiment": experiment, "strategy": strategy, "runs": str(runs), "set": shlex.join(overrides)}


def launch(federation: Federation, config: dict[str, str], nodes: int) -> tuple[str | None, Path | None, list[str]]:
    """What made the run fail or None, the newest of the run folders, and the lines that it showed."""
    lines = []
    failure = federation.run(config, nodes, show=lines.append)
    return failure, max(Path(config["runs"]).glob("*"), default=None), lines


def numbers(folder: Path) -> list[dict]:
    """The metrics without the times."""
    return [{k: v for k, v in record.items() if k != "seconds"} for record in Run.open(folder).metrics()]


def start_node(
    federation: Federation,
    folder: Path,
    node_config: str,
    address: str | None = None,
    options: Sequence[str | Path] = ("--insecure",),
) -> subprocess.Popen:
    """A SuperNode with this folder as its home, new or another's before it; it dials the SuperLink, or `address`."""
    folder.mkdir(exist_ok=True)
    command = [BIN / "flower-supernode", *options, "--superlink", address or federation.address]
    command += ["--isolation", "subprocess", "--host", "127.0.0.1", "--port", str(free_port())]
    command += ["--node-config", node_config]
    environment = federation.environment | {"FLWR_HOME": str(folder)}
    with open(folder / "log", "w") as log:
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)


class TwoSites:
    """Two SuperNodes of a SuperLink of their own, each with a folder for what its client keeps."""

    def __init__(self, stack: ExitStack, root: Path):
        self.root = root
        self.federation = stack.enter_context(Federation(simulation=False))
        self.nodes: dict[int, subprocess.Popen] = {}
        stack.callback(lambda: [self.end(site) for site in list(self.nodes)])
        for site in range(2):
            self.start(site)

    def kept(self, site: int) -> Path:
        return self.root / f"kept{site}"

    def start(self, site: int) -> None:
        config = f'partition-id={site} state-path="{self.kept(site)}"'
        self.nodes[site] = start_node(self.federation, self.root / f"node{site}", config)

    def end(self, site: int) -> None:
        node = self.nodes.pop(site)
        end_family(node.pid)
        node.wait()

    def finish(self, run_id: str) -> str:
        """How a run ended, when it has."""
        wait_for(lambda: self.federation.status(run_id)[0].startswith("finished"), "the run", pause=1)
        return self.federation.status(run_id)[0]


def wait_for(condition: Callable[[], object], what: str, patience: float = 300, pause: float = 0.1) -> None:
    limit = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < limit, f"{what} took more than {patience:g} s"
        time.sleep(pause)
