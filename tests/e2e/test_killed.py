"""Processes of a running federation are killed, one kind after the other; nothing is lost but the round under way."""

import signal
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedivon_app.runs import Run
from tests.e2e.helpers import TwoSites, configuration, launch, wait_for

pytestmark = pytest.mark.e2e

SMALL = ["data.clients=2", "clients_per_round=2", "run.checkpoint_every=1", "evaluation.every=0"]
SMALL += ["evaluation.clients_every=0", "evaluation.final_samples=0", "server.node_timeout=300"]


def kill(pid: int, name: str = "") -> int:
    """Kills the descendants of a process that have this name in their command, or all and itself; how many."""
    family = [*psutil.Process(pid).children(recursive=True), *([] if name else [psutil.Process(pid)])]
    killed = 0
    for process in family:
        with suppress(psutil.NoSuchProcess):
            if name in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
                killed += 1
    psutil.wait_procs(family if not name else [], 10)
    return killed


class Sites(TwoSites):
    """How far runs on them are."""

    def rounds(self, runs: Path) -> int:
        """How many the newest run has behind it."""
        folders = sorted(runs.glob("*"))
        return len(list(Run.open(folders[-1]).metrics())) if folders and (folders[-1] / "metrics.jsonl").exists() else 0

    def until(self, runs: Path, count: int) -> Path:
        wait_for(lambda: self.rounds(runs) >= count, f"round {count}")
        return max(runs.glob("*"))


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # as in the simulation
        yield Sites(stack, tmp_path_factory.mktemp("killed"))


def test_a_serverapp_and_a_superlink_that_were_killed_go_on_to_the_same_numbers(sites, federation, tmp_path):
    """BayesADMM, whose clients keep duals: the ServerApp is killed in round 2, the SuperLink in round 3."""
    words = [*SMALL, "rounds=4"]
    runs, server = tmp_path / "runs", sites.federation
    server.submit(configuration(runs, "demo", "bayes-admm", *words), nodes=2)
    folder = sites.until(runs, 1)
    assert kill(server.pid, "flwr-serverapp")
    assert sites.rounds(runs) < 4
    server.submit({"resume": str(folder)}, nodes=2)
    sites.until(runs, 2)
    assert kill(server.pid) > 1
    assert sites.rounds(runs) < 4
    server.start()
    assert sites.finish(server.submit({"resume": str(folder)}, nodes=2)) == "finished:completed"
    config = configuration(tmp_path / "simulated", "demo", "bayes-admm", *words, "run.client_state=run")
    failure, undisturbed, lines = launch(federation, config, nodes=2)
    assert failure is None, (failure, lines)
    records = [
        [(r["round"], r["merged"], r["dropped"]) for r in Run.open(run).metrics()] for run in (folder, undisturbed)
    ]
    assert records[0] == records[1] == [(number, True, []) for number in (1, 2, 3, 4)]
    ended, wanted = (Run.load(run / "checkpoint" / "round-000004") for run in (folder, undisturbed))
    arrays, same = (vars(payload.posterior) | state for payload, state in (ended, wanted))
    for name, array in arrays.items():
        np.testing.assert_allclose(array, same[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_round_goes_on_without_a_supernode_that_was_killed_and_has_it_back_with_its_duals(sites, tmp_path):
    words = [*SMALL, "rounds=6", "server.quorum=1", "server.grace=8"]
    run_id = sites.federation.submit(configuration(tmp_path, "demo", "bayes-admm", *words), nodes=2)
    folder = sites.until(tmp_path, 1)
    kill(sites.nodes[1].pid)
    sites.until(tmp_path, 2)
    sites.start(1)
    assert sites.finish(run_id) == "finished:completed"
    records = list(Run.open(folder).metrics())
    taking_part = [[client["partition"] for client in record["clients"]] for record in records]
    assert taking_part[0] == taking_part[-1] == [0, 1] and taking_part[1] == [0]
    assert records[1]["dropped"] == [{"partition": 1, "reason": "no reply in time"}] and records[1]["merged"]
    assert all(record["seconds"]["train"] < 600 for record in records)
