"""A SuperLink that runs: its sites, and runs of this project's app on it.

`flwr run --stream` exits 0 although the ServerApp failed; so a run is submitted, its log is followed, and its status is
asked for at the end.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fedivon_app.federation.bundle import copy_app
from fedivon_app.logs import MARK

if TYPE_CHECKING:
    from flwr.proto.control_pb2 import StreamLogsResponse
    from flwr.supercore.control import ControlHttpClient

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PATIENCE = 120  # seconds for which a SuperLink may be away while a run is followed


class LaunchError(RuntimeError):
    """Flower itself did not do what was asked."""


class SuperLink:
    """`with SuperLink("fl.example.org:8000", ca) as link: link.run(...)`, for who may reach its Control API."""

    def __init__(self, address: str, ca: Path | None = None, verbose: bool = False):
        self.address = address
        self.ca = ca
        self.verbose = verbose

    def __enter__(self) -> Self:
        self._home = tempfile.TemporaryDirectory(prefix="fedivon-flwr-", ignore_cleanup_errors=True)
        home = Path(self._home.name)
        how = (
            f"root-certificates = {json.dumps(str(self.ca.absolute()))}"
            if self.ca
            else "insecure = true"
        )
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{how}\n'
        )
        self.environment = (
            os.environ
            | {
                "FLWR_HOME": str(home),
                "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
                "FLWR_TELEMETRY_ENABLED": "0",
                "FLWR_DISABLE_UPDATE_CHECK": "1",
                "RAY_DEDUP_LOGS": "0",
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_prestart_worker_first_driver": "0",  # a process a core, of which Flower's actors use none
                "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
                "PYTHONUNBUFFERED": "1",
            }
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._home.cleanup()

    def register(self, public_key: Path, name: str) -> None:
        """Admits the node that has the key."""
        self._flwr(
            "supernode", "register", str(public_key), "here", "--name", name, "--format", "json"
        )

    def unregister(self, node: int) -> None:
        """Shuts the node out."""
        self._flwr("supernode", "unregister", str(node), "here", "--format", "json")

    def submit(self, config: dict[str, Any], nodes: int | None = None, cpus: float = 1) -> str:
        """Starts a run of this project's app, as it is now, in a simulation on that many nodes; its id."""
        with tempfile.TemporaryDirectory(dir=self._home.name) as place:
            file = (
                Path(place) / "run-config.toml"
            )  # a file, for the string form knows no quotes inside of quotes
            file.write_text(
                "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items())
            )
            options = [
                "--run-config",
                str(file),
                "--format",
                "json",
                *self._federation(nodes, cpus),
            ]
            try:
                app = copy_app(PROJECT, Path(place) / "fedivon")
            except OSError as error:
                raise LaunchError(str(error)) from None
            return str(self._flwr("run", str(app), "here", *options)["run-id"])

    def run(
        self,
        config: dict[str, Any],
        nodes: int | None = None,
        cpus: float = 1,
        show: Callable[[str], None] = print,
    ) -> str | None:
        """Starts a run, shows its progress line by line, and gives None, or what made it fail."""
        run_id = self.submit(config, nodes, cpus)
        seen = 0.0
        try:
            while not (ended := self._patiently(run_id))[0].startswith("finished"):
                seen = self._follow(run_id, show, seen)
                time.sleep(0.5)
        except (KeyboardInterrupt, SystemExit):
            self._abandon(run_id)
            raise
        status, why = ended
        return None if status == "finished:completed" else why or status

    def status(self, run_id: str) -> tuple[str, str]:
        """How far a run is, such as `running` or `finished:failed`, and why; as `flwr list` has it."""
        from flwr.proto.control_pb2 import ListRunsRequest

        with self.control() as client:
            runs = client.ListRuns(ListRunsRequest(run_id=int(run_id))).run_dict
        if int(run_id) not in runs:
            raise LaunchError(f"the SuperLink at {self.address} knows no run {run_id}")
        status = runs[int(run_id)].status
        return ":".join(word for word in (status.status, status.sub_status) if word), status.details

    @contextmanager
    def control(self) -> Iterator[ControlHttpClient]:
        """Flower's own client of the Control API: for what `flwr` does not tell, or what is asked again and again."""
        from flwr.cli.typing import SuperLinkConnection
        from flwr.cli.utils import init_http_client_from_connection

        ca = str(self.ca.absolute()) if self.ca else None
        connection = SuperLinkConnection(
            "here", self.address, root_certificates=ca, insecure=ca is None
        )
        try:
            with (
                redirect_stdout(StringIO()),
                redirect_stderr(StringIO()),
            ):  # it would say to whom it speaks
                client = init_http_client_from_connection(connection)
            with closing(client):
                yield client
        except Exception as error:
            raise LaunchError(f"the SuperLink at {self.address} does not answer: {error}") from None

    def _patiently(self, run_id: str) -> tuple[str, str]:
        """The status, also where the SuperLink is away for a while: its run may go on without us."""
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                return self.status(run_id)
            except LaunchError:
                if time.monotonic() > limit:
                    raise
                time.sleep(2)

    def _federation(self, nodes: int | None, cpus: float) -> list[str]:
        """What `flwr run` is told of the federation; nothing, for its nodes are who is there."""
        return []

    def _abandon(self, run_id: str) -> None:
        """Who is interrupted here means the run; otherwise it would go on."""
        with suppress(LaunchError):
            self._flwr("stop", run_id, "here", "--format", "json")

    def _follow(self, run_id: str, show: Callable[[str], None], seen: float) -> float:
        """Shows the run's own lines (all of Flower's where `verbose`) after that time; the time of the last."""
        rest = ""
        for part in self._stream(run_id, seen):
            *lines, rest = (rest + part.log_output).split("\n")
            seen = part.latest_timestamp
            for line in lines:
                if MARK in line or self.verbose:
                    show(_plain(line.split(MARK, 1)[-1].rstrip()))
        return seen

    def _stream(self, run_id: str, after: float) -> Iterator[StreamLogsResponse]:
        """What the run says after that time, until its end or that of the connection."""
        from flwr.proto.control_pb2 import StreamLogsRequest

        with suppress(LaunchError), self.control() as client:
            yield from client.StreamLogs(
                StreamLogsRequest(run_id=int(run_id), after_timestamp=after)
            )

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [BIN / "flwr", *arguments],
            env=self.environment,
            cwd=PROJECT,
            capture_output=True,
            text=True,
        )
        try:
            answer = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            answer = {"success": False, "error-message": done.stderr or done.stdout}
        if not answer.get("success"):
            raise LaunchError(
                f"`flwr {arguments[0]}` failed: {' '.join(str(answer.get('error-message')).split())}"
            )
        return answer


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
