"""A local Flower federation for a few runs: one SuperLink in simulation mode, started and ended here.

`flwr run --stream` exits 0 although the ServerApp failed, and knows only a federation of two nodes by itself; so a run
is submitted with its number of nodes, its log is followed, and its status is asked for at the end.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
MARK = "fedivon | "
BIN = Path(sys.executable).parent


class LaunchError(RuntimeError):
    """Flower itself did not do what was asked."""


class Federation:
    """`with Federation() as federation: federation.run(...)`: simulated nodes in one SuperLink of its own."""

    def __init__(self, start_timeout: float = 90):
        self.start_timeout = start_timeout

    def __enter__(self) -> Federation:
        self._home = tempfile.TemporaryDirectory(prefix="fedivon-flwr-", ignore_cleanup_errors=True)
        home = Path(self._home.name)
        self.port = _free_port()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
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
        command = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--database", str(home / "state.db")]
        options = {"env": self.environment, "cwd": PROJECT, "stdout": self._log, "stderr": self._log}
        self._superlink = subprocess.Popen([BIN / command[0], *command[1:]], start_new_session=True, **options)
        try:
            self._wait_until_healthy()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait_until_healthy(self) -> None:
        limit = time.monotonic() + self.start_timeout
        while time.monotonic() < limit and self._superlink.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2)
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)
        tail = " ".join(Path(self._log.name).read_text().splitlines()[-3:])
        raise LaunchError(f"Flower's SuperLink did not start within {self.start_timeout:g} s: {tail}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for sign, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, 5)):
            try:
                os.killpg(self._superlink.pid, sign)
                self._superlink.wait(patience)
                break
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._log.close()
        self._home.cleanup()

    def submit(self, config: dict[str, Any], nodes: int, cpus: float = 1) -> str:
        """Starts a run of this project's app on that many simulated nodes; its id."""
        file = Path(self._home.name) / "run-config.toml"  # a file, for the string form knows no quotes inside of quotes
        file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
        federation = f"num-supernodes={nodes} client-resources-num-cpus={cpus:g} init-args-num-cpus={os.cpu_count()}"
        options = ["--run-config", str(file), "--federation-config", federation, "--format", "json"]
        answer = self._flwr("run", str(PROJECT), "here", *options)
        if "run-id" not in answer:
            raise LaunchError(f"`flwr run` refused the run: {answer.get('error-message') or answer}")
        return str(answer["run-id"])

    def run(
        self, config: dict[str, Any], nodes: int, cpus: float = 1, show: Callable[[str], None] = print
    ) -> str | None:
        """Starts a run, shows its progress line by line, and gives None, or what made it fail."""
        run_id = self.submit(config, nodes, cpus)
        while (status := self.status(run_id))["status"].split(":")[0] != "finished":
            self._follow(run_id, show)
            time.sleep(0.5)
        if status["status"] == "finished:completed":
            return None
        return status.get("status-details") or status["status"]

    def status(self, run_id: str) -> dict[str, Any]:
        return self._flwr("list", "here", "--run-id", run_id, "--format", "json")["runs"][0]

    def stop(self, run_id: str) -> None:
        """Ends a run where it is."""
        self._flwr("stop", run_id, "here", "--format", "json")

    def _follow(self, run_id: str, show: Callable[[str], None]) -> None:
        command = [BIN / "flwr", "log", run_id, "here", "--stream"]
        options = {"env": self.environment, "cwd": PROJECT, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, text=True, **options) as process:
            try:
                for line in process.stdout:
                    if MARK in line:
                        show(_plain(line.split(MARK, 1)[1].rstrip()))
            finally:
                process.terminate()

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


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
