"""Processes of a federation with TLS and keys are killed, one kind after the other.

Nothing is lost but the round under way. The method is BayesADMM, whose clients keep duals from
round to round. Posteriors are coded, as changes to what a client holds where the server knows it.
"""

import json
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedivon_app.clients.received import Received
from fedivon_app.core.compact import Compact, digest
from fedivon_app.core.compose import compose
from fedivon_app.federation.run_maker import RunEnd
from fedivon_app.methods import settings_of
from fedivon_app.runs.folder import Run
from fedivon_app.runs.status import RunStatus
from fedivon_app.server.setup import prepare
from tests.e2e.held import rounds_behind
from tests.e2e.helpers import configuration, launch, wait_for
from tests.e2e.sites import Sites

pytestmark = pytest.mark.e2e

SITES = ["clinic-0", "clinic-1", "clinic-2"]
SMALL = [
    "data.clients=3",
    "run.checkpoint_every=1",
    "evaluation.every=0",
    "evaluation.clients_every=0",
    "evaluation.final_samples=0",
    "server.node_timeout=300",
    "wire.codec=compact",
]
IN_TURN = [*SMALL, "clients_per_round=2", "rounds=4", "seed=7"]
ORDER = [[1, 2], [0, 2], [1, 2], [0, 1]]  # each is away for a round


def kill(pid: int, name: str = "") -> int:
    """Kill the descendants of a process that have this name in their command, and return how many.

    Without a name it is all of them and the process itself.
    """
    family = psutil.Process(pid).children(recursive=True)
    if not name:
        family.append(psutil.Process(pid))
    killed = 0
    for process in family:
        with suppress(psutil.NoSuchProcess):
            if name in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
                killed += 1
    psutil.wait_procs(family if not name else [], 10)
    return killed


def taking_part(folder: Path) -> list[list[int]]:
    """Return whose replies were merged, round by round."""
    return [
        [client["partition"] for client in record["clients"]]
        for record in Run.open(folder).metrics()
    ]


def after_round(number: int, runs: Path) -> Path:
    """Return the folder of the only run, when it has this round behind it, and not yet another."""
    wait_for(lambda: rounds_behind(runs) >= number, f"round {number}")
    assert rounds_behind(runs) == number
    return max(runs.glob("*"))


def finish(sites: Sites, run_id: str) -> None:
    """Wait until a run is completed."""
    wait_for(lambda: sites.federation.end_of(run_id) is not None, "the run", pause=1)
    assert sites.federation.end_of(run_id) == RunEnd(RunStatus.COMPLETED)


def come_back(sites: Sites, site: str) -> None:
    """Start the site's node, again and again as a restart policy does.

    After a kill it is refused for a minute.
    """
    sites.start(site, SITES.index(site))

    def admitted() -> bool:
        if sites.nodes[site].poll() is not None:
            time.sleep(5)
            sites.start(site, SITES.index(site))
        return "SuperNode ID" in sites.log(site)

    wait_for(admitted, "the new SuperNode's registration")


@dataclass(frozen=True)
class Held:
    """A run that goes on after so many rounds only when there is a file `go_on`."""

    root: Path
    rounds: int

    @property
    def runs(self) -> Path:
        """Return the folder of the run's folder."""
        return self.root / "runs"

    @property
    def go_on(self) -> Path:
        """Return the file for which the run waits."""
        return self.root / "go-on"

    def overrides(self) -> list[str]:
        """Return the settings by which it waits."""
        options = {"runs": str(self.runs), "go_on": str(self.go_on), "rounds": self.rounds}
        return ["model.factory=held:mlp", f"model.options={json.dumps(options)}"]


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    with ExitStack() as stack:
        yield Sites(stack, tmp_path_factory.mktemp("killed"), SITES)


@pytest.fixture(scope="module")
def disturbed(sites, tmp_path_factory) -> Path:
    """A run of four rounds.

    In round 2, in which clients 0 and 2 are held, the SuperNode of client 1 is ended and started
    again, and the ServerApp is killed; the run is resumed. In round 3 the SuperLink is killed,
    started again, and the run is resumed once more.
    """
    server = sites.federation
    held = Held(tmp_path_factory.mktemp("disturbed"), rounds=1)
    words = [*IN_TURN, *held.overrides()]
    server.submit(configuration(held.runs, "demo", "bayes-admm", *words), nodes=3)
    folder = after_round(1, held.runs)
    sites.end("clinic-1")
    come_back(sites, "clinic-1")
    assert kill(server.pid, "flwr-serverapp")
    held.go_on.touch()
    server.submit({"resume": str(folder)}, nodes=3)
    after_round(2, held.runs)
    wait_for(
        lambda: "Received" in sites.log("clinic-1").partition("train message")[2],
        "the message of round 3",
    )
    assert kill(server.pid) > 1
    server.start()
    finish(sites, server.submit({"resume": str(folder)}, nodes=3))
    return folder


def last_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Return the server's posterior and state after round 4, by name."""
    checkpoint = Run.load(folder / "checkpoint" / "round-000004")
    return vars(checkpoint.payload.posterior) | checkpoint.state


def test_what_was_killed_goes_on_to_the_same_numbers(disturbed, federation, tmp_path):
    assert not any(record["dropped"] for record in Run.open(disturbed).metrics())
    config = configuration(tmp_path, "demo", "bayes-admm", *IN_TURN, "run.client_state=run")
    undisturbed = launch(federation, config, nodes=3).completed().folder
    assert taking_part(disturbed) == taking_part(undisturbed) == ORDER
    arrays = last_arrays(disturbed)
    same = last_arrays(undisturbed)
    assert arrays.keys() == same.keys() >= {"mean", "precision", "sum_v", "sum_u"}
    for name, array in arrays.items():
        np.testing.assert_allclose(array, same[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_server_and_client_hold_the_same_posterior(sites, disturbed):
    """Client 0 was there in round 4, and was sent what round 3 had come to."""
    settings = compose(settings_of, "demo", "bayes-admm", IN_TURN)
    codec = Compact.of(settings.wire, prepare(settings).architecture.blocks)
    sent = codec.broadcast(Run.load(disturbed / "checkpoint" / "round-000003").payload)
    received = Received(sites.kept("clinic-0") / disturbed.name / "partition-0" / "received", 1)
    assert [path.stem for path in received.folder.iterdir()] == [sent.digest]
    assert digest(received.recall(sent.digest)) == digest(sent.payload)


@pytest.fixture(scope="module")
def abandoned(sites, tmp_path_factory) -> Path:
    """A run that stops after round 4 of five.

    The SuperNode of client 1 is killed in round 2; round 3 is held until it is back.
    """
    held = Held(tmp_path_factory.mktemp("abandoned"), rounds=2)
    words = [
        *held.overrides(),
        *SMALL,
        "clients_per_round=3",
        "rounds=5",
        "run.stop_after=4",
        "server.quorum=1",
        "server.grace=8",
    ]
    config = configuration(held.runs, "demo", "bayes-admm", *words)
    run_id = sites.federation.submit(config, nodes=3)
    folder = after_round(1, held.runs)
    assert kill(sites.nodes["clinic-1"].pid)
    after_round(2, held.runs)
    come_back(sites, "clinic-1")
    held.go_on.touch()
    finish(sites, run_id)
    return folder


def test_a_round_goes_on_without_a_supernode_that_was_killed_and_has_it_back_with_its_duals(
    abandoned,
):
    records = list(Run.open(abandoned).metrics())
    first, second, *_, last = taking_part(abandoned)
    assert first == last == [0, 1, 2] and second == [0, 2]
    assert records[1]["dropped"] == [{"partition": 1, "reason": "no reply in time"}]
    assert records[1]["merged"]
    assert all(record["seconds"]["train"] < 600 for record in records)
    down = [record["bytes_down"] for record in records]
    assert down[1] < down[0]  # all held what they were sent before


def test_a_client_whose_duals_are_gone_is_dropped_by_name(sites, abandoned):
    """In round 5, for which client 0 needs what it kept in round 4."""
    (path,) = (sites.kept("clinic-0") / abandoned.name).glob("*/round-000004.safetensors")
    path.unlink()
    finish(sites, sites.federation.submit({"resume": str(abandoned)}, nodes=3))
    *_, record = Run.open(abandoned).metrics()
    (dropped,) = record["dropped"]
    assert record["round"] == 5 and record["merged"] and dropped["partition"] == 0
    assert f"what this client kept in round 4 is gone: there is no {path}" in dropped["reason"]
    assert [client["partition"] for client in record["clients"]] == [1, 2]
