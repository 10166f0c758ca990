"""What clients of the ADMM family keep between rounds survives a resume of the run and a restart of the SuperNode.

Two clients, one a round: 1, 0, 1, 0. Either is away for a round before it is asked again.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.launch import Federation
from fedivon_app.runs import Run
from tests.e2e.helpers import TwoSites, configuration, launch, numbers, wait_for

pytestmark = pytest.mark.e2e

SMALL = ["seed=39", "data.clients=2", "clients_per_round=1", "rounds=4", "run.checkpoint_every=1"]
SMALL += ["evaluation.every=2", "evaluation.samples=2", "evaluation.final_samples=2", "evaluation.clients_every=0"]
ORDER = [[1], [0], [1], [0]]


def simulate(federation: Federation, runs: Path, *overrides: str) -> Path:
    config = configuration(runs, "demo", "bayes-admm", *SMALL, "run.client_state=run", *overrides)
    failure, folder, lines = launch(federation, config, nodes=2)
    assert failure is None, (failure, lines)
    return folder


def order(folder: Path) -> list[list[int]]:
    """Whose replies were merged, round by round."""
    return [[client["partition"] for client in record["clients"]] for record in Run.open(folder).metrics()]


@pytest.fixture(scope="module")
def undisturbed(federation, tmp_path_factory) -> Path:
    return simulate(federation, tmp_path_factory.mktemp("undisturbed"))


def test_duals_survive_a_resume(federation, undisturbed, tmp_path):
    folder = simulate(federation, tmp_path, "run.stop_after=2")
    assert order(folder) == ORDER[:2]
    assert federation.run({"resume": str(folder)}, 2) is None
    assert order(folder) == ORDER
    assert numbers(folder) == numbers(undisturbed)


class Sites(TwoSites):
    """Runs on them can be held after their round 1."""

    def __init__(self, stack: ExitStack, root: Path):
        super().__init__(stack, root)
        self.runs, self.go_on = root / "runs", root / "go-on"

    def restart(self, site: int) -> None:
        self.end(site)
        self.start(site)
        log = self.root / f"node{site}" / "log"
        wait_for(lambda: "SuperNode ID" in log.read_text(), "the new SuperNode's registration")

    def run(self, config: dict[str, str], after_round_1: Callable[[], None] | None = None) -> Path:
        """A run to its end, and its folder; the call comes after round 1, with client 0 held before round 2."""
        run_id = self.federation.submit(config, nodes=2)
        if after_round_1:
            wait_for(lambda: list(self.runs.glob("*/metrics.jsonl")), "round 1")
            after_round_1()
        self.go_on.touch()
        assert self.finish(run_id) == "finished:completed"
        (folder,) = self.runs.glob("*")
        return folder


@pytest.fixture(scope="module")
def restarted(tmp_path_factory):
    """Sites, and a run that stopped after round 3, with the SuperNode of client 1 ended and started after round 1."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # as in the simulation
        sites = Sites(stack, tmp_path_factory.mktemp("sites"))
        options = json.dumps({"runs": str(sites.runs), "go_on": str(sites.go_on)})
        words = [*SMALL, "run.stop_after=3", "model.factory=held:mlp", f"model.options={options}"]
        config = configuration(sites.runs, "demo", "bayes-admm", *words, "server.node_timeout=300")
        yield sites, sites.run(config, after_round_1=lambda: sites.restart(1))


def test_duals_survive_a_restart_of_the_supernode(restarted, undisturbed):
    _, folder = restarted
    assert order(folder) == ORDER[:3]
    assert not any(record["dropped"] for record in Run.open(folder).metrics())
    ended, wanted = (Run.load(run / "checkpoint" / "round-000003") for run in (folder, undisturbed))
    arrays, same = (vars(payload.posterior) | state for payload, state in (ended, wanted))
    assert arrays.keys() == same.keys() >= {"mean", "precision", "sum_v", "sum_u"}
    for name, array in arrays.items():
        np.testing.assert_allclose(array, same[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_a_client_whose_duals_are_gone_is_dropped_by_name(restarted):
    """The run goes on with round 4, in which client 0 needs what it kept in round 2."""
    sites, folder = restarted
    (path,) = sites.kept(0).glob("*/*/round-000002.safetensors")
    shutil.rmtree(sites.kept(0))
    sites.run({"resume": str(folder)})
    *_, record = Run.open(folder).metrics()
    (dropped,) = record["dropped"]
    assert record["round"] == 4 and not record["merged"] and dropped["partition"] == 0
    assert f"what this client kept in round 2 is gone: there is no {path}" in dropped["reason"]
    (before, _), (after, _) = (Run.load(folder / "checkpoint" / f"round-{number:06d}") for number in (3, 4))
    np.testing.assert_array_equal(after.posterior.mean, before.posterior.mean)
    np.testing.assert_array_equal(after.posterior.precision, before.posterior.precision)
