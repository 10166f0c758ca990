"""The package that docs/extending.md writes, piece by piece, runs as it is written there."""

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from fedivon_app import server_app
from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of
from fedivon_app.runs.folder import Run
from tests import golden
from tests.documents import ROOT, blocks, example_files, example_package, read

PIECES = [
    "merge.rule=mypackage.rules:Median",
    "merge.weighting=mypackage.weights:root",
    "data.partition=mypackage.parts:by_parity",
    "model.factory=mypackage.net:build",
    "model.options={width: 8}",
    "evaluation.scores=[mypackage.scores:MARGIN]",
    "evaluation.select_by=margin",
]
SHORT = [
    "rounds=2",
    "data.clients=4",
    "clients_per_round=3",
    "evaluation.every=1",
    "evaluation.samples=2",
    "evaluation.final_samples=2",
    "evaluation.clients_every=1",
    "run.client_state=run",
]


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory):
    """The package, importable."""
    with example_package(tmp_path_factory.mktemp("site")):
        yield


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs the demo for two rounds in this process, and gives the last record."""
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(server_app, "write_report", lambda *given: None)
    golden.prepare_process()

    def start(strategy, *words):
        text = " ".join(f"'{word}'" for word in (*SHORT, *words))
        runs = tmp_path / "runs"
        config = {"experiment": "demo", "strategy": strategy, "set": text, "runs": str(runs)}
        context = Context(
            run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config
        )
        server_app.main(golden.InProcess(4), context)
        (folder,) = runs.iterdir()
        return list(Run.open(folder).metrics())[-1]

    return start


def test_the_page_has_every_piece():
    assert sorted(example_files()) == [
        "data.py",
        "method.py",
        "net.py",
        "parts.py",
        "rules.py",
        "scores.py",
        "weights.py",
    ]


def test_a_method_of_ones_own_runs(run):
    record = run("mypackage.method:METHOD", "merge.momentum=0.3")
    assert record["round"] == 2 and record["speed"] > 0
    assert record["dropped"] == []


def test_all_other_pieces_run_together(run):
    record = run("fedivon", *PIECES)
    assert 0 < record["gm"]["test"]["mc"]["margin"] < 1
    pooled = record["gm"]["clients_before_training"]["mean"]
    assert 0 < pooled["margin"] < 1
    assert record["dropped"] == []


def test_a_table_of_ones_own_is_read(run, tmp_path):
    random = np.random.default_rng(0)
    rows = np.column_stack([random.normal(size=(80, 3)), np.arange(80) % 2])
    np.savetxt(tmp_path / "table.csv", rows, delimiter=";")
    record = run(
        "fedavg",
        "dataset=null",
        "data.source=mypackage.data:load",
        f"data.path={tmp_path / 'table.csv'}",
        "data.options.delimiter=;",
        "data.partition=iid",
    )
    assert 0 <= record["gm"]["test"]["mean"]["accuracy"] <= 1


def test_its_settings_are_checked_like_any_others():
    with pytest.raises(ValueError, match="momentun.*did you mean momentum"):
        compose(settings_of, "demo", "mypackage.method:METHOD", ["merge.momentun=0.5"])


def test_what_stands_in_no_file_runs_too():
    for block in blocks(read(ROOT / "docs" / "extending.md"), "python"):
        if not block.startswith("# mypackage/"):
            exec(compile(block, "docs/extending.md", "exec"), {})
