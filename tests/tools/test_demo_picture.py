"""The README's picture of the demo can be drawn."""

import runpy
from pathlib import Path

import pytest

from fedivon_app import server_app
from fedivon_app.core.errors import SettingsError
from tests.golden import CLIENTS, InProcess, context_of, prepare_process

TOOL = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "demo_picture.py"))
SHORT = f"data.clients={CLIENTS} rounds=1 client.epochs=1 evaluation.final_samples=4"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    prepare_process()
    for strategy, words in (("fedavg", ""), ("fedivon", ""), ("fedivon", "merge.rule=nwa")):
        config = {"experiment": "few-rounds", "strategy": strategy, "runs": str(place)}
        config["set"] = f"{SHORT} {words}"
        server_app.main(InProcess(CLIENTS), context_of(config))
    return place


def test_it_has_a_line_for_each_kind_in_each_panel(runs):
    figure = TOOL["draw"](runs)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Accuracy", "NLL", "ECE"]
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["FedAvg", "FedIvon's clients, merged as plain averages", "FedIvon"]


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"has no runs of: FedAvg, FedIvon's"):
        TOOL["draw"](tmp_path)
