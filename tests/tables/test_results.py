"""Files of results: what is kept and read back, and when a number is older than the code."""

import json

import pytest

from fedivon_app.core.errors import SettingsError
from fedivon_app.runs import fingerprint
from fedivon_app.tables import result_file
from fedivon_app.tables.conditions import Condition
from fedivon_app.tables.filled import best_scale, fill
from fedivon_app.tables.markdown import list_text, table_text
from fedivon_app.tables.page import page_text
from fedivon_app.tables.result_file import (
    Measured,
    ResultFiles,
    changed_since,
    common,
    leaves_of,
    rest,
)
from fedivon_app.tables.table_file import read_table
from fedivon_app.tables.verdicts import State
from tests.tables.toy import TABLE, conf_with, outcome

WORDS = ("data.clients=4", "clients_per_round=null", "evaluation.every=1", "rounds=2")
FEDAVG = Condition("demo", "fedavg", WORDS)
FEDIVON = Condition("demo", "fedivon", WORDS)


@pytest.fixture
def table(tmp_path):
    return read_table("toy", conf_with(tmp_path, toy=TABLE))


@pytest.fixture
def results(tmp_path):
    files = ResultFiles(tmp_path / "results")
    for seed, accuracy in enumerate([0.89, 0.91]):
        files.add(FEDAVG, FEDAVG.settings(seed), outcome("fedavg", seed, accuracy))
        files.add(FEDIVON, FEDIVON.settings(seed), outcome("fedivon", seed, accuracy, nll=0.2))
    return files


@pytest.fixture
def edited(monkeypatch):
    """Changes the source of a module as one would who edits its file."""

    def edit(module, old, new):
        source = fingerprint._source

        def changed_source(name):
            text = source(name)
            if name != module:
                return text
            assert old in text
            return text.replace(old, new, 1)

        monkeypatch.setattr(fingerprint, "_source", changed_source)

    return edit


def test_what_is_kept_is_read_back(results, tmp_path):
    again = ResultFiles(tmp_path / "results")
    assert again.find(FEDIVON) == results.find(FEDIVON)
    assert again.find(FEDIVON).runs[1] == outcome("fedivon", 1, 0.91, nll=0.2)
    assert again.find(FEDIVON).settings == leaves_of(FEDIVON.settings())
    assert again.find(Condition("demo", "fedavg", ())) is None


def test_what_all_runs_share_is_written_once(results, tmp_path):
    values = json.loads((tmp_path / "results" / "demo.json").read_text())
    assert values["settings"]["data.clients"] == 4
    assert "client.ess" in values["conditions"][1]["settings"]
    assert "fedivon_app.core.flat" in values["code"]
    assert "fedivon_app.clients.fedivon" in values["conditions"][1]["code"]
    assert all(run["code"] == {} for one in values["conditions"] for run in one["runs"])


def test_common_entries_and_the_rest_make_up_the_whole():
    dictionaries = [{"a": 1, "b": 2}, {"a": 1, "b": 3, "c": None}]
    shared = common(dictionaries)
    assert shared == {"a": 1}
    assert [shared | rest(one, shared) for one in dictionaries] == dictionaries
    assert common([]) == {}


def test_a_new_outcome_takes_the_place_of_the_same_seed(results):
    results.add(FEDAVG, FEDAVG.settings(), outcome("fedavg", 0, 0.5))
    assert results.find(FEDAVG).runs[0].curve("gm", "test", "mean", "accuracy")[2] == 0.5
    assert sorted(results.find(FEDAVG).runs) == [0, 1]


def test_under_other_settings_earlier_seeds_are_dropped(results):
    other = Condition("demo", "fedavg", (*WORDS, "client.epochs=7")).settings()
    results.add(FEDAVG, other, outcome("fedavg", 0, 0.5))
    assert sorted(results.find(FEDAVG).runs) == [0]
    measured = results.find(FEDAVG)
    assert changed_since(measured, measured.runs[0]) == ["client.epochs"]


def test_what_another_process_adds_meanwhile_is_not_lost(results, tmp_path):
    other = ResultFiles(tmp_path / "results")
    assert len(other.of("demo")[FEDAVG].runs) == 2
    results.add(FEDAVG, FEDAVG.settings(2), outcome("fedavg", 2))
    other.add(FEDIVON, FEDIVON.settings(2), outcome("fedivon", 2))
    kept = ResultFiles(tmp_path / "results").of("demo")
    assert [list(kept[one].runs) for one in (FEDAVG, FEDIVON)] == [[0, 1, 2], [0, 1, 2]]


def test_a_damaged_file_is_told(tmp_path):
    (tmp_path / "demo.json").write_text('{"conditions": 3}')
    with pytest.raises(SettingsError, match="demo.json is not a file of results"):
        ResultFiles(tmp_path).of("demo")


def test_a_table_is_filled_with_means_deviations_and_verdicts(table, results):
    filled = fill(table, "here", results)
    entries = {(entry.row, entry.column): entry for entry in filled.entries[:6]}
    accuracy = entries["FedAvg", "Accuracy %"]
    assert accuracy.ours.mean == pytest.approx(90) and accuracy.agrees
    assert accuracy.ours.deviation == pytest.approx(2**0.5)
    assert entries["FedAvg", "NLL"].ours.mean == pytest.approx(0.75)  # of rounds 1 and 2
    assert not entries["FedIvon", "Accuracy %"].agrees
    assert filled.state is State.DIFFERS  # the order by accuracy is a tie here
    text = table_text(filled)
    assert "| FedAvg | 90.0 ± 1.4 (90 ± 1; +0.0) ✓ | 0.750 ± 0.000 (0.5; +0.250) ✗ | 2 |" in text
    assert "2026-11-18, abc1234 |" in text
    assert "Two rounds in place of 20." in text
    assert "FedIvon is ahead. This does not hold (digits, Accuracy %)." in text
    page = page_text(filled)
    assert "90.0 ± 1.4" in page and "does not agree" in page and "not since" not in page
    assert "`toy`" in list_text([filled])


def test_the_scale_at_which_most_was_run_is_shown(table, results, tmp_path):
    assert best_scale(table, results).scale == "here"
    words = (*WORDS[:3], "rounds=20")
    for strategy in ("fedavg", "fedivon"):
        assert best_scale(table, results).scale == "here"
        paper = Condition("demo", strategy, words)
        results.add(paper, paper.settings(), outcome(strategy))
    assert best_scale(table, results).scale == "paper"
    only_quick = ResultFiles(tmp_path / "quick")
    assert best_scale(table, only_quick).scale == "here"
    quick = Condition("demo", "fedavg", (*WORDS[:3], "rounds=1"))
    only_quick.add(quick, quick.settings(), outcome("fedavg", rounds=1))
    assert best_scale(table, only_quick).scale == "quick"


def test_a_run_that_failed_is_told_and_not_averaged(table, results):
    results.add(FEDAVG, FEDAVG.settings(1), outcome("fedavg", 1, failed="the mean grew"))
    filled = fill(table, "here", results)
    assert filled.entries[0].ours.values == (89.0,)
    assert "failed, seed 1: the mean grew" in table_text(filled)


def marked(table, results):
    ages = fill(table, "here", results).ages
    return {row: age.note for (_, row), age in ages.items() if age.note}


def test_a_line_in_a_methods_client_marks_its_rows_and_no_others(table, results, edited):
    assert marked(table, results) == {}
    edited("fedivon_app.clients.fedivon", "class FedIvonClient", "LINE = 1\nclass FedIvonClient")
    note = "measured before clients/fedivon.py changed, not since"
    assert marked(table, results) == {"FedIvon": note, "FedIvon@mean": note}
    assert note in table_text(fill(table, "here", results))
    assert "2 of 3 rows are older than the code" in list_text([fill(table, "here", results)])


def test_a_line_in_the_core_marks_every_row(table, results, edited):
    edited("fedivon_app.core.flat", "import torch", "import torch\nLINE = 1")
    assert set(marked(table, results)) == {"FedAvg", "FedIvon", "FedIvon@mean"}


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("fedivon_app.clients.fedivon", '"""', '"""Other words: '),
        ("fedivon_app.clients.fedivon", "class FedIvonClient", "# a word\nclass FedIvonClient"),
        ("fedivon_app.clients.fedivon", "from typing", "import math\nfrom typing"),
        ("fedivon_app.strategies.pfedhb", "class PFedHB", "LINE = 1\nclass PFedHB"),
        ("fedivon_app.datasets.npz", "def npz", "LINE = 1\ndef npz"),
    ],
)
def test_words_other_methods_and_readers_of_files_mark_nothing(
    table, results, edited, module, old, new
):
    edited(module, old, new)
    assert marked(table, results) == {}


def test_a_value_of_an_experiment_marks_the_rows_that_use_it(table, results, monkeypatch):
    compose = result_file.Condition.settings

    def other(condition, seed=0):
        settings = compose(condition, seed)
        if condition.strategy != "fedavg":
            return settings
        client = settings.client.model_copy(update={"epochs": 9})
        return settings.model_copy(update={"client": client})

    monkeypatch.setattr(result_file.Condition, "settings", other)
    assert marked(table, results) == {"FedAvg": "measured before client.epochs changed, not since"}


def test_a_setting_that_is_new_marks_nothing_while_it_has_its_default(table, results):
    measured = results.find(FEDAVG)
    before = {key: value for key, value in measured.settings.items() if key != "evaluation.ood"}
    assert result_file.changed_settings(before, FEDAVG) == []
    without = {key: value for key, value in before.items() if key != "data.clients"}
    assert result_file.changed_settings(without, FEDAVG) == ["data.clients"]


def test_a_setting_that_is_new_drops_no_seed_while_it_has_its_default(results, tmp_path):
    measured = results.find(FEDAVG)
    before = {key: value for key, value in measured.settings.items() if key != "evaluation.ood"}
    old = Measured(FEDAVG, before, measured.runs)
    result_file.write_results(results.folder / "demo.json", [old])
    again = ResultFiles(results.folder)
    again.add(FEDAVG, FEDAVG.settings(), outcome("fedavg", 5, 0.5))
    assert sorted(again.find(FEDAVG).runs) == [0, 1, 5]
