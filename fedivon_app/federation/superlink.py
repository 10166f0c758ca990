"""A SuperLink that runs: its sites, and runs of this project's app on it.

`flwr run --stream` exits 0 although the ServerApp failed; so a run is submitted, its log is
followed, and how it ended is asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, Self

from flwr.cli.typing import SuperLinkConnection
from flwr.cli.utils import init_http_client_from_connection
from flwr.proto.control_pb2 import ListRunsRequest, StreamLogsRequest, StreamLogsResponse
from flwr.supercore.control import ControlHttpClient

from fedivon_app.core.errors import FlowerError
from fedivon_app.core.text import one_line
from fedivon_app.federation.bundle import app_root, copy_app, working_folder
from fedivon_app.federation.flower_words import own_words, plain, unboxed
from fedivon_app.federation.run_maker import RunConfig, RunEnd
from fedivon_app.federation.tls import tls_hint
from fedivon_app.logs import MARK
from fedivon_app.runs.status import RunStatus

BIN = Path(sys.executable).parent
PATIENCE = 120  # seconds for which a SuperLink may be away while a run is followed
PLACES = ("FEDIVON_DATA", "FEDIVON_STATE")  # folders that the environment may name
UNREACHABLE = "Connection to the SuperLink is unavailable"  # how `flwr` begins to say so
FINISHED = "finished"  # Flower's word for a run that has ended, however it did


class SuperLink:
    """A SuperLink at this address, for whoever may reach its Control API.

    `with SuperLink("fl.example.org:8000", ca) as link: link.run(...)`; `ca` is its authority's
    certificate, and without one there is no TLS.
    """

    def __init__(self, address: str, ca: Path | None = None, verbose: bool = False):
        self.address = address
        self.ca = ca
        self.verbose = verbose

    def __enter__(self) -> Self:
        self._home = tempfile.TemporaryDirectory(prefix="fedivon-flwr-", ignore_cleanup_errors=True)
        home = Path(self._home.name)
        trust = "insecure = true"
        if self.ca is not None:
            trust = f"root-certificates = {json.dumps(str(self.ca.absolute()))}"
        connection = f'[superlink.here]\naddress = "{self.address}"\n{trust}\n'
        (home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n\n{connection}')
        self.environment = {
            **os.environ,
            **_absolute_places(),
            "FLWR_HOME": str(home),
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_DEDUP_LOGS": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray would start a process a core beforehand, of which Flower's actors use none.
            "RAY_prestart_worker_first_driver": "0",
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
        }
        return self

    def __exit__(self, *error: object) -> None:
        self._home.cleanup()

    def register(self, public_key: Path, name: str) -> None:
        """Admit the node that has this key."""
        words = ["supernode", "register", str(public_key.absolute()), "here", "--name", name]
        self._flwr([*words, "--format", "json"])

    def unregister(self, node: int) -> None:
        """Shut this node out."""
        self._flwr(["supernode", "unregister", str(node), "here", "--format", "json"])

    def submit(self, config: RunConfig, nodes: int | None = None, cpus: float = 1) -> str:
        """Start a run of this project's app, as it is now, and return the run's id.

        In a simulation it has so many nodes, each with so many CPUs.
        """
        with tempfile.TemporaryDirectory(dir=self._home.name) as place:
            # A file, for the string form knows no quotes inside of quotes.
            file = Path(place) / "run-config.toml"
            lines = [f"{key} = {json.dumps(value)}\n" for key, value in config.items()]
            file.write_text("".join(lines))
            try:
                app = copy_app(app_root(), Path(place) / "fedivon")
            except OSError as error:
                raise FlowerError(f"the app cannot be copied for Flower: {error}") from None
            words = ["run", str(app), "here", "--run-config", str(file), "--format", "json"]
            return str(self._flwr([*words, *self._federation(nodes, cpus)])["run-id"])

    def run(
        self,
        config: RunConfig,
        nodes: int | None = None,
        cpus: float = 1,
        show: Callable[[str], None] = print,
    ) -> RunEnd:
        """Start a run, show its progress line by line, and return what it came to."""
        run_id = self.submit(config, nodes, cpus)
        seen = 0.0
        try:
            while (end := self._patiently(run_id)) is None:
                seen = self._follow(run_id, show, seen)
                time.sleep(0.5)
        except (KeyboardInterrupt, SystemExit):
            self._abandon(run_id)
            raise
        return end

    def end_of(self, run_id: str) -> RunEnd | None:
        """Return how a run ended, as `flwr list` has it, or None while it goes on."""

        with self.control() as client:
            runs = client.ListRuns(ListRunsRequest(run_id=int(run_id))).run_dict
        if int(run_id) not in runs:
            raise FlowerError(f"the SuperLink at {self.address} knows no run {run_id}")
        told = runs[int(run_id)].status
        if told.status != FINISHED:
            return None
        status = RunStatus(told.sub_status)
        if status is RunStatus.COMPLETED:
            return RunEnd(status)
        why = own_words(told.details)
        return RunEnd(status, why or f"{FINISHED}:{status}")

    @contextmanager
    def control(self) -> Iterator[ControlHttpClient]:
        """Give Flower's own client of the Control API.

        It is for what `flwr` does not tell, or what is asked again and again.
        """

        ca = str(self.ca.absolute()) if self.ca else None
        connection = SuperLinkConnection(
            "here", self.address, root_certificates=ca, insecure=ca is None
        )
        try:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                client = init_http_client_from_connection(connection)  # it says to whom it speaks
            with closing(client):
                yield client
        except Exception as error:
            raise self._silence(unboxed(str(error))) from None

    def _silence(self, why: str) -> FlowerError:
        """Return why there is no talking to the SuperLink, if nobody knows better than `why`."""
        if hint := tls_hint(self.address, self.ca):
            return FlowerError(f"cannot talk to {self.address}: {hint}")
        return FlowerError(f"the SuperLink at {self.address} does not answer: {why}")

    def _patiently(self, run_id: str) -> RunEnd | None:
        """Ask also where the SuperLink is away for a while: its run may go on without us."""
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                return self.end_of(run_id)
            except FlowerError:
                if time.monotonic() > limit:
                    raise
                time.sleep(2)

    def _federation(self, nodes: int | None, cpus: float) -> list[str]:
        """What `flwr run` is told of the federation: nothing, for its nodes are who is there."""
        return []

    def _abandon(self, run_id: str) -> None:
        """Stop the run: who is interrupted here means it, and otherwise it would go on."""
        with suppress(FlowerError):
            self._flwr(["stop", run_id, "here", "--format", "json"])

    def _follow(self, run_id: str, show: Callable[[str], None], seen: float) -> float:
        """Show the run's lines after that time, or all of Flower's; return the time of the last."""
        rest = ""
        for part in self._stream(run_id, seen):
            *lines, rest = (rest + part.log_output).split("\n")
            seen = part.latest_timestamp
            for line in lines:
                if MARK in line or self.verbose:
                    show(plain(line.split(MARK, 1)[-1].rstrip()))
        return seen

    def _stream(self, run_id: str, after: float) -> Iterator[StreamLogsResponse]:
        """What the run says after that time, until its end or that of the connection."""

        with suppress(FlowerError), self.control() as client:
            yield from client.StreamLogs(
                StreamLogsRequest(run_id=int(run_id), after_timestamp=after)
            )

    def _flwr(self, words: list[str]) -> dict[str, Any]:
        done = subprocess.run(
            [str(BIN / "flwr"), *words],
            env=self.environment,
            cwd=working_folder(),
            capture_output=True,
            text=True,
        )
        answer: dict[str, Any]
        try:
            answer = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            answer = {"success": False, "error-message": done.stderr or done.stdout}
        if not answer.get("success"):
            why = one_line(unboxed(str(answer.get("error-message"))))
            if UNREACHABLE in why:
                raise self._silence("is the address right, and is it running?")
            raise FlowerError(f"`flwr {words[0]}` failed: {why}")
        return answer


def _absolute_places() -> dict[str, str]:
    """The folders that the environment names, for Flower's processes have a folder of their own."""
    given = {name: os.environ.get(name) for name in PLACES}
    return {
        name: str(Path(place).expanduser().absolute()) for name, place in given.items() if place
    }
