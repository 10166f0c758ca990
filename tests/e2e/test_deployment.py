"""The same app on SuperNodes that are processes of their own, each with its own data file."""

import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from datasets.sources import load
from fedivon_app.launch import Federation, end_family
from fedivon_app.runs import Run
from tests.e2e.helpers import configuration, launch, start_node

pytestmark = pytest.mark.e2e


def site_file(path: Path, site: int) -> Path:
    digits = load("digits")
    mine = slice(site, None, 2)
    named = {name: getattr(digits, name)[mine] for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(path, **named)
    return path


def test_two_sites_with_files_of_their_own(tmp_path):
    with ExitStack() as stack:
        federation = stack.enter_context(Federation(simulation=False))
        for site in range(2):
            file = site_file(tmp_path / f"site{site}.npz", site)
            config = f'partition-id={site} data-path="{file}"'
            node = start_node(federation, tmp_path / f"node{site}", config)
            stack.callback(end_family, node.pid)
        overrides = ["dataset=null", "data.source=nodes", "data.shape=[8,8,1]", "data.num_classes=10", "data.clients=2"]
        overrides += ["clients_per_round=2", "rounds=2", "evaluation.clients_every=2", "server.node_timeout=90"]
        began = time.monotonic()
        config = configuration(tmp_path / "runs", "demo", "fedivon", *overrides)
        failure, folder, lines = launch(federation, config, 2)
        assert failure is None, (failure, lines)
        assert time.monotonic() - began < 300
    records = list(Run.open(folder).metrics())
    assert [[c["num_examples"] for c in r["clients"]] for r in records] == [[721, 721]] * 2
    by_client = records[-1]["gm"]["clients_before_training"]["by_client"]
    assert [c["partition"] for c in by_client] == [0, 1]
    assert "test" not in records[-1]["gm"]
