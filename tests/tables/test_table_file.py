"""conf/table: what a file may say, and that all that are shipped can be run."""

import pytest

from fedivon_app.core.errors import SettingsError
from fedivon_app.tables.conditions import check_rows, left_out, places, wanted
from fedivon_app.tables.table_file import SCALES, read_table, table_names
from tests.tables.toy import TABLE, conf_with

FIGURES = {  # which tables and which figures of each paper have data
    "fedivon": "tables 1 2 3 4 5, figures 2 3 4 5 6 7 8",
    "pfedhb": "tables 1 2 3 5 6 7 8 9, figures 3 4 5 7",
    "fischer": "tables 1 2 3 4 5, figures 2 3 4 5 6 7 8 9",
    "bayes-admm": "tables 1 2, figures 3a 3b 4",
}


def test_every_table_and_figure_with_data_of_the_four_papers_is_there():
    expected = set()
    for paper, listed in FIGURES.items():
        for kind in listed.split(", "):
            what, *numbers = kind.split()
            expected |= {f"{paper}-{what.removesuffix('s')}{number}" for number in numbers}
    assert set(table_names()) == expected and len(expected) == 42


@pytest.mark.parametrize("name", table_names())
def test_every_table_can_be_read_and_all_of_its_runs_can_be_composed(name):
    table = read_table(name)
    assert name.startswith(f"{table.paper}-") and table.title and table.place
    for scale in SCALES:
        for condition in dict.fromkeys(place.condition for place in places(table, scale)):
            assert condition.settings().strategy == condition.strategy
    for scale in ("here", "quick"):
        for block in table.blocks:
            for row in block.rows:
                size = table.scale(scale, block, row)
                assert size.words.strip() or size.cannot or table.draws == "labels", block.name


@pytest.fixture
def read(tmp_path):
    def reading(old="", new=""):
        assert old in TABLE
        return read_table("toy", conf_with(tmp_path, toy=TABLE.replace(old, new, 1)))

    return reading


def test_fedivons_tables_rest_on_the_values_of_its_paper():
    """The experiments without `-paper` have values that were measured to be better."""
    tables = [read_table(name) for name in table_names() if name.startswith("fedivon-")]
    conditions = {place.condition for table in tables for place in places(table, "paper")}
    of_the_paper = [one for one in conditions if "-fedivon" in one.experiment]
    assert {one.experiment for one in of_the_paper} == {
        f"{name}-fedivon-paper" for name in ("cifar10", "emnist", "svhn")
    }


def test_a_cell_is_laid_together_from_table_block_column_and_row(read):
    table = read()
    cells = {(p.block.name, p.row.name, p.column.name): p for p in places(table, "here")}
    place = cells["digits", "FedIvon", "NLL"]
    assert place.cell.way == "mc" and place.cell.rounds == (1, 2) and place.cell.score == "nll"
    assert place.condition.words == (
        "demo --strategy fedivon --set data.clients=4 clients_per_round=null evaluation.every=1 "
        "rounds=2"
    )
    assert cells["digits", "FedIvon@mean", "NLL"].condition == place.condition
    large = cells["large", "FedAvg", "NLL"].condition
    assert large.set[-2:] == ("model.options={sizes: [64, 64]}", "rounds=2")


def test_rows_that_share_their_runs_are_run_once_and_those_that_cannot_run_are_left_out(read):
    table = read()
    here = wanted(table, "here")
    assert [one.condition.strategy for one in here] == ["fedavg", "fedivon", "fedavg"]
    assert {one.seeds for one in here} == {2}
    assert len(wanted(table, "paper")) == 2 and len(wanted(table, "paper", anyway=True)) == 3
    assert left_out(table, "paper") == {"large": "It takes a day."}
    assert left_out(table, "here") == {}
    assert [one.seeds for one in wanted(table, "quick", seeds=5)] == [5, 5, 5]


@pytest.mark.parametrize(
    ("rows", "number"),
    [
        (["digits"], 2),
        (["FedIvon*"], 1),
        (["fedavg"], 2),
        (["large"], 1),
        (["digits", "large"], 3),
        (["digits", "fedavg"], 1),
        (["large", "FedIvon*"], 0),
    ],
)
def test_rows_are_named_by_block_row_or_method(read, rows, number):
    table = read()
    check_rows(table, rows)
    assert len(wanted(table, "here", rows)) == number


def test_a_name_that_means_no_row_is_told(read):
    with pytest.raises(SettingsError, match="--rows FedIvom: toy has no such .* mean FedIvon"):
        check_rows(read(), ["FedIvom"])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("score: nll", "score: nl", "there is no such quantity: did you mean nll?"),
        ("paper: [90 ± 1, 0.5]", "paper: [90]", "digits, FedAvg: 1 numbers .* for 2 columns"),
        ("90 ± 1", "about 90", "'about 90' is not of the form"),
        ("better: [FedIvon]", "better: [FedIvo]", "a claim names no row: did you mean FedIvon"),
        ("columns: [Accuracy %]", "columns: [Acc %]", "a claim names no column"),
        ("name: NLL", "name: Accuracy %", "there are two of the column 'Accuracy %'"),
        ("quick:", "quik:", "quik"),
        ("title: Digits", "titel: Digits", "titel"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(read, old, new, complaint):
    with pytest.raises(SettingsError, match=f"conf/table/toy.yaml: .*{complaint}"):
        read(old, new)


def test_a_table_that_is_not_there_is_told(tmp_path):
    with pytest.raises(SettingsError, match="no table 'toys' .* did you mean toy?"):
        read_table("toys", conf_with(tmp_path, toy=TABLE))
