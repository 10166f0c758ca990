"""The compose files themselves, on a Docker engine.

The stack goes up, does a run with TLS and keys, loses a node that is killed, and goes down. Where
there is no engine or no base image, the reason for skipping says so; `make compose-test` brings
both.
"""

import os
import shutil
import subprocess
from ipaddress import ip_network
from pathlib import Path

import pytest

from fedivon_app.federation.local_federation import free_port
from fedivon_app.runs.folder import Run
from tests.e2e.helpers import PROJECT, wait_for

pytestmark = pytest.mark.e2e

SITES = ["clinic-0", "clinic-1", "clinic-2"]
SHORT = ["--set", "data.clients=3", "rounds=2", "server.node_timeout=300"]

KILL = """
import os, pathlib
for process in pathlib.Path("/proc").glob("[0-9]*"):
    own = int(process.name) == os.getpid()
    if not own and b"/fedivon\\0node\\0" in (process / "cmdline").read_bytes():
        os.kill(int(process.name), 9)
"""


def said(*command: str) -> str | None:
    """Return what a command says, or None if it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def composer() -> list[str] | None:
    """Return the command of Compose, which is Docker's plugin or the program of old."""
    if said("docker", "compose", "version"):
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def obstacle() -> str | None:
    """Return why the compose files cannot be tried here, or None."""
    base = os.environ.get("FEDIVON_BASE_IMAGE", "python:3.11-slim")
    if not said("docker", "info", "--format", "{{.ServerVersion}}"):
        return "no Docker engine here"
    if not composer():
        return "no docker compose here"
    if said("docker", "image", "inspect", base) is None and said("docker", "pull", base) is None:
        return f"no base image {base} here, and none to pull (FEDIVON_BASE_IMAGE names another)"
    return None


class Stack:
    """A copy of the checkout, brought up by Compose; keys, data and runs land in it."""

    def __init__(self, folder: Path, file: str = "docker-compose.yml", **environment: str):
        self.folder = folder
        self.file = file
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=PROJECT,
            capture_output=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (PROJECT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(PROJECT / name, folder / name)
        for certificate in os.environ.get("FEDIVON_TRUST", "").split():
            shutil.copy(certificate, folder / "deploy" / "trust" / f"{Path(certificate).stem}.crt")
        own = {
            "COMPOSE_PROJECT_NAME": f"fedivontest-{folder.name}-{os.getpid()}",
            "COMPOSE_HTTP_TIMEOUT": "600",
        }
        self.environment = os.environ | {"FEDIVON_PORT": str(free_port())} | own | environment

    def __enter__(self) -> "Stack":
        self("up", "--build", "--detach")
        return self

    def __exit__(self, *_: object) -> None:
        profiles = [word for name in ("run", "insecure", "doctor") for word in ("--profile", name)]
        self(*profiles, "down", "--volumes", "--remove-orphans", "--timeout", "5")

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            [*composer(), "-f", self.file, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{' '.join(words)}: {(done.stdout + done.stderr)[-3000:]}"
        return done.stdout

    def logs(self, service: str) -> str:
        return self("logs", "--no-color", service)

    def container(self, service: str) -> str:
        (number,) = self("ps", "-q", service).split()
        return number

    def state(self, service: str) -> str:
        return self.inspected(
            service, "{{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{end}}"
        )

    def restarts(self, service: str) -> str:
        return self.inspected(service, "{{.RestartCount}}")

    def inspected(self, service: str, form: str) -> str:
        """Return what `docker inspect` says of a service's container, in Go's template language."""
        return said("docker", "inspect", "--format", form, self.container(service)) or "gone"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    if why := obstacle():
        pytest.skip(f"{why}: the compose file is not tried")
    with Stack(tmp_path_factory.mktemp("one-host")) as stack:
        yield stack


def the_run(folder: Path, strategy: str) -> Run:
    """Return the only run of a method in a folder."""
    (found,) = folder.glob(f"*-{strategy}")
    return Run.open(found)


def test_all_services_become_healthy_and_the_three_sites_are_admitted(stack):
    for service in ("superlink", "proxy", "supernode-0", "supernode-1", "supernode-2"):
        wait_for(lambda service=service: stack.state(service) == "healthy", service, pause=2)
    wait_for(
        lambda: stack("run", "--rm", "fedivon", "sites").count("online") == 3, "the sites", pause=2
    )
    listed = stack("run", "--rm", "fedivon", "sites")
    assert all(site in listed for site in SITES)


def test_containers_have_no_root_and_keys_of_their_own_only(stack):
    for service in ("superlink", "proxy", "supernode-0"):
        assert stack("exec", "-T", service, "id", "-u").strip() == "1000"
    seen = stack("exec", "-T", "supernode-0", "find", "/keys", "/data", "-type", "f").split()
    assert sorted(seen) == [
        "/data/site.npz",
        *(f"/keys/site/{name}" for name in ("ca.crt", "node.key", "node.pub")),
    ]
    assert "server.key" not in stack("exec", "-T", "supernode-1", "find", "/keys")


def test_a_run_leaves_its_folder_on_the_host(stack):
    shown = stack("run", "--rm", "fedivon", "run", "sites", *SHORT)
    assert "PM at the mean" in shown
    run = the_run(stack.folder / "runs", "fedivon")
    records = list(run.metrics())
    taking_part = [sorted(c["partition"] for c in record["clients"]) for record in records]
    assert taking_part == [[0, 1, 2]] * 2
    assert (run.folder / "report.html").is_file() and run.folder.stat().st_uid == 1000


def test_a_killed_node_comes_back_and_takes_part(stack):
    before = stack.restarts("supernode-2")
    stack("exec", "-T", "supernode-2", "python3", "-c", KILL)
    wait_for(lambda: stack.restarts("supernode-2") != before, "the restart", pause=1)
    wait_for(lambda: stack.state("supernode-2") == "healthy", "the node", pause=2)
    wait_for(
        lambda: stack("run", "--rm", "fedivon", "sites").count("online") == 3, "the sites", pause=5
    )
    stack("run", "--rm", "fedivon", "run", "sites", "--strategy", "bayes-admm", *SHORT)
    records = list(the_run(stack.folder / "runs", "bayes-admm").metrics())
    assert [len(record["clients"]) for record in records] == [3, 3]


def test_only_the_proxy_is_reached_from_the_sites_network(stack):
    reach = (
        "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)"
    )
    stack("exec", "-T", "supernode-0", "python3", "-c", reach, "proxy", "8443")
    with pytest.raises(AssertionError, match="gaierror|timed out|refused"):
        stack("exec", "-T", "supernode-0", "python3", "-c", reach, "superlink", "8000")


def test_the_insecure_profile_runs_by_itself(stack):
    service = ["--profile", "insecure", "run", "--rm", "insecure"]
    stack(*service, "run", "quickstart", "--strategy", "fedavg", *SHORT)
    assert len(list(the_run(stack.folder / "runs", "fedavg").metrics())) == 2


def test_a_server_and_a_site_apart(stack, tmp_path_factory):
    """As on two hosts: of the server's, the site has its folder of keys and the address alone."""
    subnet = said(
        "docker", "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Subnet}}"
    )
    gateway = str(ip_network(subnet)[1])  # an engine that was never started before does not say it
    here = tmp_path_factory.mktemp("server")
    there = tmp_path_factory.mktemp("site")
    with Stack(
        here, "deploy/server.yml", FEDIVON_HOST=gateway, FEDIVON_SITES="north south"
    ) as server:
        site = Stack(
            there,
            "deploy/site.yml",
            FEDIVON_SITE="north",
            FEDIVON_PARTITION="0",
            FEDIVON_SERVER=f"{gateway}:{server.environment['FEDIVON_PORT']}",
        )
        keys = here / "deploy" / "keys" / "sites" / "north"
        shutil.copytree(keys, there / "deploy" / "keys" / "site")
        (there / "deploy" / "data").mkdir()
        shutil.copy(stack.folder / "data" / "clinic-0" / "site.npz", there / "deploy" / "data")
        assert "north: admitted" in server(
            "run", "--rm", "fedivon", "sites", "--keys", "/keys", "--admit", "north"
        )
        with site:
            assert "nothing to fix" in site("run", "--rm", "doctor")
            private = ["-name", "*.key", "-o", "-name", "site.npz"]
            inside = site("exec", "-T", "supernode", "find", "/app", *private)
            assert not inside.split(), "keys or data were built into the image"
            server("run", "--rm", "fedivon", "run", "sites", *SHORT, "data.clients=1")
            assert "north, round 2: trained on" in site.logs("supernode")
    record, _ = the_run(here / "deploy" / "runs", "fedivon").metrics()
    assert [client["partition"] for client in record["clients"]] == [0]
