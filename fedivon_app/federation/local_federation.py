"""A local Flower federation for a few runs: one SuperLink, started and ended here."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from fedivon_app.core.errors import FlowerError
from fedivon_app.federation import ray_cluster
from fedivon_app.federation.bundle import app_root, copy_app, working_folder
from fedivon_app.federation.ray_cluster import check_address, environment_for
from fedivon_app.federation.run_maker import RunConfig
from fedivon_app.federation.shared_nodes import CLIENTS
from fedivon_app.federation.superlink import BIN, PLACES, SuperLink

# Simulated nodes that play the clients. Flower gives each a message every tenth of a second.
FEW = 32
NODES_A_CORE = 8


class Federation(SuperLink):
    """A SuperLink with simulated nodes: `with Federation() as federation: federation.run(...)`.

    Without `simulation` the nodes are SuperNodes that somebody starts and points to `address`; with
    `keys`, a folder that `fedivon keys` made, they speak TLS and need keys that are registered.
    `cores` are those that a simulation may use, None for all that there are; `gpus` is the share of
    a GPU that each simulated node has. `ray` is the address of a Ray cluster that is to play the
    clients, None for this machine.
    """

    def __init__(
        self,
        simulation: bool = True,
        verbose: bool = False,
        start_timeout: float = 90,
        keys: Path | None = None,
        cores: int | None = None,
        ray: str | None = None,
        gpus: float = 0,
    ):
        super().__init__(
            address=f"127.0.0.1:{free_port()}",
            ca=keys / "server" / "ca.crt" if keys else None,
            verbose=verbose,
        )
        self.simulation = simulation
        self.start_timeout = start_timeout
        self.keys = keys
        self.cores = cores
        self.ray = ray
        self.gpus = gpus
        self._superlink: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self.ray is not None:
            check_address(self.ray)
        super().__enter__()
        self.environment.pop(ray_cluster.ADDRESS, None)  # a cluster is used by whoever names it
        if self.ray is not None:
            places = {name: self.environment[name] for name in PLACES if name in self.environment}
            self.environment |= environment_for(self.ray, self._code, places)
        self._log = open(Path(self._home.name) / "superlink.log", "w")
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def start(self) -> None:
        """Start the SuperLink, new or again with what it had in its database.

        Beside others its processes compute with as many threads as it has cores.
        """
        if self.cores is not None:
            self.environment.setdefault("OMP_NUM_THREADS", str(self.cores))
        host, _, port = self.address.partition(":")
        command = [str(BIN / "flower-superlink"), "--isolation", "subprocess"]
        command += ["--database", str(Path(self._home.name) / "state.db"), *self._tls()]
        command += ["--host", host, "--port", port]
        if self.simulation:
            command.append("--simulation")
        if not Path(command[0]).exists():
            raise FlowerError(
                f"there is no flower-superlink in {BIN}, beside this Python; "
                "`pip install 'flwr[simulation]'` puts it there"
            )
        self._superlink = subprocess.Popen(
            command,
            env=self.environment,
            cwd=working_folder(),
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self._wait_until_healthy(self._superlink)

    def _tls(self) -> list[str]:
        if self.keys is None:
            return ["--insecure"]
        place = self.keys / "server"
        files = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
        given = [
            word for name, file in files.items() for word in (f"--ssl-{name}", str(place / file))
        ]
        return [*given, "--enable-supernode-auth"]

    def _wait_until_healthy(self, process: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + self.start_timeout
        trust = ssl.create_default_context(cafile=self.ca) if self.ca else None
        address = f"http{'s' if trust else ''}://{self.address}/health"
        while time.monotonic() < limit and process.poll() is None:
            try:
                urllib.request.urlopen(address, timeout=2, context=trust)
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)
        tail = " ".join(Path(self._log.name).read_text().splitlines()[-3:])
        raise FlowerError(
            f"Flower's SuperLink did not start within {self.start_timeout:g} s: {tail}"
        )

    def __exit__(self, *error: object) -> None:
        if self._superlink is not None:
            end_family(self._superlink.pid)
            self._superlink.wait()
        self._log.close()
        super().__exit__(*error)

    @property
    def pid(self) -> int:
        """The process id of the SuperLink, from which all its processes come."""
        if self._superlink is None:
            raise FlowerError("the SuperLink has not been started")
        return self._superlink.pid

    def submit(self, config: RunConfig, nodes: int | None = None, cpus: float = 1) -> str:
        """Start a run; where it is simulated, Flower's nodes play its clients in turn."""
        if self.simulation and nodes is not None:
            config = {**config, CLIENTS: nodes}
        if self.ray is not None:
            shutil.rmtree(self._code, ignore_errors=True)
            copy_app(app_root(), self._code)
        return super().submit(config, nodes, cpus)

    def _federation(self, nodes: int | None, cpus: float) -> list[str]:
        """How many nodes are simulated, for Flower's own default is two."""
        if not self.simulation:
            return []
        if self.ray is not None:
            few = nodes and min(nodes, ray_cluster.NODES)
            resources = f"client-resources-num-cpus={cpus:g}{self._share_of_gpu}"
            return ["--federation-config", f"num-supernodes={few} {resources}"]
        cores = self.cores or os.cpu_count() or 1
        own = min(cpus, cores)
        few = nodes and min(nodes, max(FEW, NODES_A_CORE * cores))
        resources = f"client-resources-num-cpus={own:g} init-args-num-cpus={cores}"
        resources += self._share_of_gpu
        return ["--federation-config", f"num-supernodes={few} {resources}"]

    @property
    def _code(self) -> Path:
        """Where the app lies that goes to the workers of a Ray cluster, as the run has it."""
        return Path(self._home.name) / "app"

    @property
    def _share_of_gpu(self) -> str:
        """What Flower is told of GPUs, if its nodes have any."""
        return f" client-resources-num-gpus={self.gpus:g}" if self.gpus else ""

    def _abandon(self, run_id: str) -> None:
        """The run ends with the SuperLink."""


def end_family(pid: int, patience: float = 10) -> None:
    """End a process and all that came of it.

    Its group would not do, for the SuperLink's executor and Ray have sessions of their own.
    """
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.terminate()
    _, alive = psutil.wait_procs(family, patience)
    for member in alive:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(alive, patience)


def free_port() -> int:
    """Return a port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
