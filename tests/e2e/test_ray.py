"""`--ray`: simulated clients on a Ray cluster of two nodes, which are started here.

A run gives the numbers of one machine, the workers have the code that was sent to them, and a
worker that dies costs the client that it played and no more.
"""

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from fedivon_app.federation.inline_federation import InlineFederation
from fedivon_app.federation.local_federation import Federation, end_family, free_port
from fedivon_app.federation.superlink import BIN
from tests.e2e.helpers import configuration, launch, numbers, wait_for

pytestmark = pytest.mark.e2e

SMALL = [
    "data.clients=5",
    "clients_per_round=null",
    "rounds=4",
    "evaluation.every=0",
    "evaluation.clients_every=0",
    "evaluation.final_samples=2",
    "run.client_state=run",
]


def start_ray(log: Path, *words: str) -> subprocess.Popen:
    """Start a node of a cluster with one CPU, and wait until it is there."""
    command = [BIN / "ray", "start", "--block", "--num-cpus", "1", "--disable-usage-stats", *words]
    with open(log, "w") as file:
        process = subprocess.Popen(
            command,
            env={**os.environ, "RAY_prestart_worker_first_driver": "0"},
            cwd=log.parent,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    wait_for(lambda: "Ray runtime started" in log.read_text(), "a node of Ray")
    return process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a cluster of two nodes."""
    place = tmp_path_factory.mktemp("ray")
    address = f"127.0.0.1:{free_port()}"
    # The names of Ray's sockets have to be short.
    short = Path("/tmp") / f"fedivon-ray-{os.getpid()}"
    head = ["--head", f"--port={address.partition(':')[2]}", "--include-dashboard=false"]
    nodes = [start_ray(place / "head.log", *head, f"--temp-dir={short}")]
    try:
        nodes.append(start_ray(place / "second.log", f"--address={address}"))
        yield address
    finally:
        for node in nodes:
            end_family(node.pid)
            node.wait()
        subprocess.run(["rm", "-rf", short], check=True)


@pytest.fixture(scope="module")
def federation(cluster):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), os.pathsep)
        with Federation(ray=cluster) as started:
            yield started


def workers() -> list[psutil.Process]:
    """The processes that play clients, of all clusters of this machine."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any("ClientAppActor" in word for word in process.info["cmdline"] or ()):
            found.append(process)
    return found


def test_two_nodes_give_the_numbers_of_one_machine_with_the_code_that_was_sent(
    federation, tmp_path
):
    before = {one.pid for one in workers()}
    seen: dict[int, Path] = {}

    def look(line: str) -> None:
        for one in workers():
            if one.pid not in before:
                seen[one.pid] = Path(one.cwd())

    config = configuration(tmp_path / "ray", "demo", "bayes-admm", *SMALL)
    end = federation.run(config, nodes=5, cpus=1, show=look)
    assert not end.failed, end
    assert len(seen) == 2
    assert all("working_dir_files" in folder.parts for folder in seen.values())
    with InlineFederation() as inline:
        alone = configuration(tmp_path / "inline", "demo", "bayes-admm", *SMALL)
        found = launch(inline, alone, nodes=5, at_once=os.cpu_count() or 1).completed()
    (folder,) = (tmp_path / "ray").iterdir()
    assert numbers(folder) == numbers(found.folder)


def test_a_worker_that_dies_costs_its_client_and_no_more(federation, tmp_path):
    config = configuration(tmp_path, "demo", "fedavg", *SMALL, "model.factory=crashing:mlp")
    end = federation.run(config, nodes=5, cpus=1, show=print)
    assert not end.failed, end
    (folder,) = tmp_path.iterdir()
    dropped = [[one["partition"] for one in record["dropped"]] for record in numbers(folder)]
    assert dropped == [[], [0], [], []]
    (why,) = numbers(folder)[1]["dropped"]
    assert why["reason"] == "the worker that played this client died"
