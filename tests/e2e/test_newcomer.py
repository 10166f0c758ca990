"""A site that comes to a running deployment with labels that mean something else is named."""

from contextlib import ExitStack

import pytest

from fedivon_app.federation.sites import admit, sites_of
from fedivon_app.runs.folder import Run
from tests.e2e.helpers import configuration, wait_for
from tests.e2e.sites import Sites
from tests.e2e.test_killed import Held, after_round, finish
from tests.server.test_newcomers import write_site

pytestmark = pytest.mark.e2e

THERE = ["clinic-0", "clinic-1"]
LATE = "clinic-2"
SMALL = [
    "data.shape=[4]",
    "data.num_classes=2",
    "rounds=4",
    "client.epochs=8",
    "client.batch_size=8",
    "evaluation.clients_every=1",
    "evaluation.personal=false",
    "evaluation.samples=2",
    "evaluation.final_samples=0",
    "server.node_timeout=300",
]


def test_the_newcomer_after_whom_the_model_is_worse_stands_in_the_log(tmp_path):
    """Two sites make two rounds; the third is admitted while they are held in the next one."""
    for site in [*THERE, LATE]:
        (tmp_path / "data" / site).mkdir(parents=True)
        labels = [1, 0] if site == LATE else [0, 1]
        write_site(tmp_path / "data" / site / "site.npz", labels=labels)
    held = Held(tmp_path, rounds=2)
    with ExitStack() as stack:
        names = {site: f'name="{site}"' for site in [*THERE, LATE]}
        sites = Sites(
            stack,
            tmp_path / "sites",
            THERE,
            others=(LATE,),
            data=tmp_path / "data",
            configs=names,
        )
        link = sites.federation
        words = configuration(held.runs, "sites", "fedivon", *SMALL, *held.overrides())
        run_id = link.submit(words, nodes=2)
        folder = after_round(2, held.runs)
        list(admit(link, sites.keys, [LATE]))
        sites.start(LATE, 2)
        online = ["online"] * 3
        wait_for(lambda: [site.status for site in sites_of(link)] == online, "the newcomer")
        held.go_on.touch()
        finish(sites, run_id)
    records = list(Run.open(folder).metrics())
    there = [[client["partition"] for client in record["clients"]] for record in records]
    assert there == [[0, 1], [0, 1], [0, 1], [0, 1, 2]]
    told = [line for line in (folder / "log.txt").read_text().splitlines() if "took part" in line]
    print("\n".join(told))
    (line,) = told
    assert "round 4: accuracy fell from 100.0 % (round 3) to " in line
    assert "partition 2 (clinic-2) took part for the first time: look at the data there" in line
