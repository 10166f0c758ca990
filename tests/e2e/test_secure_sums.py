"""Secure sums over SuperNodes with TLS and keys, of which some are killed in the midst of them.

Five sites: in round 2 the node of one is killed before it masks its vector, and in round 3 that of
another after it did, when its seed has to be put together from what the others hold.
"""

import signal
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedivon_app.core.codec import Raw
from fedivon_app.core.secure.shares import threshold_of
from fedivon_app.federation.run_maker import RunEnd
from fedivon_app.runs.folder import Run
from fedivon_app.runs.status import RunStatus
from tests.e2e.helpers import configuration, wait_for
from tests.e2e.sites import Sites
from tests.methods.test_secure import Losing, Standings, run

pytestmark = pytest.mark.e2e

SITES = [f"clinic-{number}" for number in range(5)]
EARLY, LATE, HELD = "clinic-1", "clinic-2", "clinic-0"
SMALL = [
    "data.clients=5",
    "clients_per_round=5",
    "client.epochs=1",
    "rounds=3",
    "run.checkpoint_every=1",
    "evaluation.every=0",
    "evaluation.clients_every=0",
    "evaluation.final_samples=0",
    "data.shard_sizes=[8,20]",
    "server.node_timeout=300",
    "server.quorum=4",
    "server.grace=5",
]


def kill(sites: Sites, site: str) -> None:
    """Kill the node of a site with all its processes."""
    node = psutil.Process(sites.nodes[site].pid)
    family = [*node.children(recursive=True), node]
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(family, 10)


def wait_until_sent(sites: Sites, site: str, words: str) -> None:
    """Wait until a site's node has sent the answer of which its log has these words."""
    wait_for(lambda: "Sent" in sites.log(site).partition(words)[2], words)


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    with ExitStack() as stack:
        yield Sites(stack, tmp_path_factory.mktemp("secure"), SITES, signed=True)


@pytest.fixture(scope="module")
def disturbed(sites, tmp_path_factory) -> Path:
    """The folder of the run in whose second and third rounds a node is killed."""
    runs = tmp_path_factory.mktemp("runs")
    words = ["model.factory=held:mlp_here", f"model.options={{runs: {runs}}}"]
    words += [*SMALL, "privacy.secure_aggregation=true"]
    hold = {site: sites.root / site / "hold" for site in SITES}
    hold[EARLY].touch()
    server = sites.federation
    run_id = server.submit(configuration(runs, "demo", "fedivon", *words), nodes=5)
    wait_until_sent(sites, EARLY, "training in round 2: shares")
    kill(sites, EARLY)
    wait_for(lambda: "training in round 2: unmask" in sites.log(LATE), "the sum of round 2")
    hold[HELD].touch()
    wait_until_sent(sites, LATE, "round 3: trained")
    kill(sites, LATE)
    hold[HELD].unlink()
    wait_for(lambda: server.end_of(run_id) is not None, "the run", pause=0.5)
    assert server.end_of(run_id) == RunEnd(RunStatus.COMPLETED)
    return max(runs.glob("*"))


def test_sums_go_on_without_nodes_that_are_killed_and_are_those_in_the_open(disturbed, tmp_path):
    records = list(Run.open(disturbed).metrics())
    there = [[client["partition"] for client in record["clients"]] for record in records]
    assert there == [[0, 1, 2, 3, 4], [0, 2, 3, 4], [0, 2, 3, 4]]
    assert all(record["merged"] for record in records)

    def lost(what, number, partition):
        return what == "train" and number > 1 and partition == 1

    standings = Standings()
    words = [*SMALL, "model.options={sizes: [16]}"]
    run("fedivon", tmp_path, *words, grid=Losing(lost, clients=5), rounds=3, records=standings)
    for number, expected in enumerate(standings.arrays, start=1):
        saved = disturbed / "checkpoint" / f"round-{number:06d}"
        if saved.is_dir():
            found = Raw().encode(Run.load(saved).payload)
            np.testing.assert_allclose(found["mean"], expected["mean"], rtol=0, atol=1e-6)
            np.testing.assert_allclose(found["precision"], expected["precision"], rtol=1e-5)
    assert threshold_of(5) == 4 and threshold_of(4) == 3


def test_what_a_site_does_for_a_sum_is_in_its_own_log(sites, disturbed):
    log = sites.log("clinic-3")
    for stage in ("keys", "shares", "unmask"):
        assert f"clinic-3, training in round 1: {stage}" in log
    assert "masked, among 5 sites" in log
    assert "masked, among 4 sites" in log.partition("round 3: trained")[2]
