"""A local Flower federation for a few runs: one SuperLink, started and ended here.

`flwr run --stream` exits 0 although the ServerApp failed, and knows only a federation of two nodes by itself; so a run
is submitted with its number of nodes, its log is followed, and its status is asked for at the end.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

PROJECT = Path(__file__).resolve().parents[1]
MARK = "fedivon | "
BIN = Path(sys.executable).parent


class LaunchError(RuntimeError):
    """Flower itself did not do what was asked."""


class Federation:
    """`with Federation() as federation: federation.run(...)`: a SuperLink with simulated nodes.

    Without `simulation` the nodes are SuperNodes that somebody starts and points to `address`; with `keys`, a folder
    that `fedivon keys` made, they speak TLS and need keys that are registered.
    """

    def __init__(
        self, simulation: bool = True, verbose: bool = False, start_timeout: float = 90, keys: Path | None = None
    ):
        self.simulation, self.verbose, self.start_timeout, self.keys = simulation, verbose, start_timeout, keys

    def __enter__(self) -> Federation:
        self._home = tempfile.TemporaryDirectory(prefix="fedivon-flwr-", ignore_cleanup_errors=True)
        home = Path(self._home.name)
        self.address = f"127.0.0.1:{free_port()}"
        how = f'root-certificates = "{self.keys}/server/ca.crt"' if self.keys else "insecure = true"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{how}\n'
        )
        self.environment = os.environ | {
            "FLWR_HOME": str(home),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_DEDUP_LOGS": "0",
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
        }
        self._log = open(home / "superlink.log", "w")
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def start(self) -> None:
        """Starts the SuperLink, new or again with what it had in its database."""
        home, (host, port) = Path(self._home.name), self.address.split(":")
        command = ["flower-superlink", "--isolation", "subprocess", "--database", str(home / "state.db"), *self._tls()]
        command += ["--host", host, "--port", port, *(["--simulation"] if self.simulation else [])]
        options = {"env": self.environment, "cwd": PROJECT, "stdout": self._log, "stderr": self._log}
        self._superlink = subprocess.Popen([BIN / command[0], *command[1:]], start_new_session=True, **options)
        self._wait_until_healthy()

    def _tls(self) -> list[str]:
        if self.keys is None:
            return ["--insecure"]
        place = self.keys / "server"
        files = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
        given = [word for name, file in files.items() for word in (f"--ssl-{name}", str(place / file))]
        return [*given, "--enable-supernode-auth"]

    def register(self, public_key: Path, name: str) -> None:
        """Admits the node that has the key."""
        self._flwr("supernode", "register", str(public_key), "here", "--name", name, "--format", "json")

    def _wait_until_healthy(self) -> None:
        limit = time.monotonic() + self.start_timeout
        trust = ssl.create_default_context(cafile=self.keys / "server" / "ca.crt") if self.keys else None
        address = f"http{'s' if trust else ''}://{self.address}/health"
        while time.monotonic() < limit and self._superlink.poll() is None:
            try:
                urllib.request.urlopen(address, timeout=2, context=trust)
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)
        tail = " ".join(Path(self._log.name).read_text().splitlines()[-3:])
        raise LaunchError(f"Flower's SuperLink did not start within {self.start_timeout:g} s: {tail}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end_family(self._superlink.pid)
        self._superlink.wait()
        self._log.close()
        self._home.cleanup()

    @property
    def pid(self) -> int:
        """Of the SuperLink, from which all its processes come."""
        return self._superlink.pid

    def submit(self, config: dict[str, Any], nodes: int, cpus: float = 1) -> str:
        """Starts a run of this project's app, in a simulation on that many nodes; its id."""
        file = Path(self._home.name) / "run-config.toml"  # a file, for the string form knows no quotes inside of quotes
        file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
        options = ["--run-config", str(file), "--format", "json"]
        if self.simulation:
            resources = f"client-resources-num-cpus={cpus:g} init-args-num-cpus={os.cpu_count()}"
            options += ["--federation-config", f"num-supernodes={nodes} {resources}"]
        answer = self._flwr("run", str(PROJECT), "here", *options)
        if "run-id" not in answer:
            raise LaunchError(f"`flwr run` refused the run: {answer.get('error-message') or answer}")
        return str(answer["run-id"])

    def run(
        self, config: dict[str, Any], nodes: int, cpus: float = 1, show: Callable[[str], None] = print
    ) -> str | None:
        """Starts a run, shows its progress line by line, and gives None, or what made it fail."""
        run_id = self.submit(config, nodes, cpus)
        seen = 0
        while (status := self.status(run_id))["status"].split(":")[0] != "finished":
            seen = self._follow(run_id, show, seen)
            time.sleep(0.5)
        if status["status"] == "finished:completed":
            return None
        return status.get("status-details") or status["status"]

    def status(self, run_id: str) -> dict[str, Any]:
        return self._flwr("list", "here", "--run-id", run_id, "--format", "json")["runs"][0]

    def _follow(self, run_id: str, show: Callable[[str], None], seen: int) -> int:
        """Shows the run's own lines (all of Flower's where `verbose`) after the first `seen`; how many there were."""
        command = [BIN / "flwr", "log", run_id, "here", "--stream"]
        options = {"env": self.environment, "cwd": PROJECT, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, text=True, **options) as process:
            try:
                number = 0
                for number, line in enumerate(process.stdout, 1):
                    if number > seen and (MARK in line or self.verbose):
                        show(_plain(line.split(MARK, 1)[-1].rstrip()))
            finally:
                process.terminate()
        return max(number, seen)

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [BIN / "flwr", *arguments], env=self.environment, cwd=PROJECT, capture_output=True, text=True
        )
        try:
            return json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            raise LaunchError(
                f"`flwr {arguments[0]}` failed: {' '.join((done.stderr or done.stdout).split())}"
            ) from None


def end_family(pid: int, patience: float = 10) -> None:
    """Ends a process and all that came of it; the SuperLink's executor and Ray have sessions of their own."""
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


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
