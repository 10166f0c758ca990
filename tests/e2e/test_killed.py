"""Processes of a federation with TLS and keys are killed, one kind after the other; nothing is lost but the round under
way. The method is BayesADMM, whose clients keep duals from round to round."""

import json
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedivon_app.runs.folder import Run
from tests.e2e.held import rounds_behind
from tests.e2e.helpers import configuration, launch, wait_for
from tests.e2e.sites import Sites

pytestmark = pytest.mark.e2e

SITES = ["clinic-0", "clinic-1"]
SMALL = [
    "data.clients=2",
    "run.checkpoint_every=1",
    "evaluation.every=0",
    "evaluation.clients_every=0",
]
SMALL += ["evaluation.final_samples=0", "server.node_timeout=300"]
IN_TURN = [*SMALL, "clients_per_round=1", "rounds=4", "seed=39"]
ORDER = [[1], [0], [1], [0]]  # either is away for a round before it is asked again


def kill(pid: int, name: str = "") -> int:
    """Kills the descendants of a process that have this name in their command, or all and itself; how many."""
    family = [
        *psutil.Process(pid).children(recursive=True),
        *([] if name else [psutil.Process(pid)]),
    ]
    killed = 0
    for process in family:
        with suppress(psutil.NoSuchProcess):
            if name in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
                killed += 1
    psutil.wait_procs(family if not name else [], 10)
    return killed


def taking_part(folder: Path) -> list[list[int]]:
    """Whose replies were merged, round by round."""
    return [
        [client["partition"] for client in record["clients"]]
        for record in Run.open(folder).metrics()
    ]


def after_round(number: int, runs: Path) -> Path:
    """The folder of the only run, when it has this round behind it, and not yet another."""
    wait_for(lambda: rounds_behind(runs) >= number, f"round {number}")
    assert rounds_behind(runs) == number
    return max(runs.glob("*"))


def finish(sites: Sites, run_id: str) -> None:
    wait_for(lambda: sites.federation.status(run_id)[0].startswith("finished"), "the run", pause=1)
    assert sites.federation.status(run_id)[0] == "finished:completed"


def come_back(sites: Sites, site: str) -> None:
    """The site's node is started, again and again as by a restart policy: after a kill it is refused for a minute."""
    sites.start(site, SITES.index(site))

    def admitted() -> bool:
        if sites.nodes[site].poll() is not None:
            time.sleep(5)
            sites.start(site, SITES.index(site))
        return "SuperNode ID" in sites.log(site)

    wait_for(admitted, "the new SuperNode's registration")


def held(root: Path, rounds: int) -> tuple[Path, Path, list[str]]:
    """A folder for a run that goes on after so many rounds when there is a certain file, that file, and settings."""
    runs = root / "runs"
    go_on = root / "go-on"
    options = json.dumps({"runs": str(runs), "go_on": str(go_on), "rounds": rounds})
    return runs, go_on, ["model.factory=held:mlp", f"model.options={options}"]


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    with ExitStack() as stack:
        yield Sites(stack, tmp_path_factory.mktemp("killed"), SITES)


@pytest.fixture(scope="module")
def disturbed(sites, tmp_path_factory) -> Path:
    """A run of four rounds. In round 2, in which client 0 is held, the SuperNode of client 1 is ended and
    started again, and the ServerApp is killed; the run is resumed. In round 3 the SuperLink is killed, started again,
    and the run is resumed once more."""
    server = sites.federation
    (runs, go_on, words) = held(tmp_path_factory.mktemp("disturbed"), rounds=1)
    config = configuration(runs, "demo", "bayes-admm", *IN_TURN, *words)
    server.submit(config, nodes=2)
    folder = after_round(1, runs)
    sites.end("clinic-1")
    come_back(sites, "clinic-1")
    assert kill(server.pid, "flwr-serverapp")
    go_on.touch()
    server.submit({"resume": str(folder)}, nodes=2)
    after_round(2, runs)
    wait_for(
        lambda: "Received" in sites.log("clinic-1").partition("train message")[2],
        "the message of round 3",
    )
    assert kill(server.pid) > 1
    server.start()
    finish(sites, server.submit({"resume": str(folder)}, nodes=2))
    return folder


def test_what_was_killed_goes_on_to_the_same_numbers(disturbed, federation, tmp_path):
    assert not any(record["dropped"] for record in Run.open(disturbed).metrics())
    config = configuration(tmp_path, "demo", "bayes-admm", *IN_TURN, "run.client_state=run")
    failure, undisturbed, lines = launch(federation, config, nodes=2)
    assert failure is None, (failure, lines)
    assert taking_part(disturbed) == taking_part(undisturbed) == ORDER
    ended, wanted = (
        Run.load(run / "checkpoint" / "round-000004") for run in (disturbed, undisturbed)
    )
    arrays, same = (vars(payload.posterior) | state for payload, state in (ended, wanted))
    assert arrays.keys() == same.keys() >= {"mean", "precision", "sum_v", "sum_u"}
    for name, array in arrays.items():
        np.testing.assert_allclose(array, same[name], rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def abandoned(sites, tmp_path_factory) -> Path:
    """A run that stops after round 4 of five. The SuperNode of client 1 is killed in round 2; round 3 is held until it
    is back."""
    runs, go_on, words = held(tmp_path_factory.mktemp("abandoned"), rounds=2)
    words += [
        *SMALL,
        "clients_per_round=2",
        "rounds=5",
        "run.stop_after=4",
        "server.quorum=1",
        "server.grace=8",
    ]
    run_id = sites.federation.submit(configuration(runs, "demo", "bayes-admm", *words), nodes=2)
    folder = after_round(1, runs)
    assert kill(sites.nodes["clinic-1"].pid)
    after_round(2, runs)
    come_back(sites, "clinic-1")
    go_on.touch()
    finish(sites, run_id)
    return folder


def test_a_round_goes_on_without_a_supernode_that_was_killed_and_has_it_back_with_its_duals(
    abandoned,
):
    records = list(Run.open(abandoned).metrics())
    first, second, *_, last = taking_part(abandoned)
    assert first == last == [0, 1] and second == [0]
    assert (
        records[1]["dropped"] == [{"partition": 1, "reason": "no reply in time"}]
        and records[1]["merged"]
    )
    assert all(record["seconds"]["train"] < 600 for record in records)


def test_a_client_whose_duals_are_gone_is_dropped_by_name(sites, abandoned):
    """In round 5, for which client 0 needs what it kept in round 4."""
    (path,) = (sites.kept("clinic-0") / abandoned.name).glob("*/round-000004.safetensors")
    path.unlink()
    finish(sites, sites.federation.submit({"resume": str(abandoned)}, nodes=2))
    *_, record = Run.open(abandoned).metrics()
    (dropped,) = record["dropped"]
    assert record["round"] == 5 and record["merged"] and dropped["partition"] == 0
    assert f"what this client kept in round 4 is gone: there is no {path}" in dropped["reason"]
    assert [client["partition"] for client in record["clients"]] == [1]
