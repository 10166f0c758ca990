"""Tables: what their columns become, and what is refused by name."""

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from fedivon_app.core.data_settings import DataSettings
from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.sources import load
from fedivon_app.datasets.table_file import TableFile

COLUMNS = {
    "age": [30, 41, None, 60, 35, 52, 47, 58, 63, 29],
    "sex": ["f", "m", "m", None, "f", "f", "m", "f", "m", "f"],
    "smokes": [True, False, False, True, None, True, False, True, False, True],
    "site": ["north", "north", "south", "south", "north", "south", "south", "north"]
    + ["south"] * 2,
    "split": ["train"] * 4 + ["test"] + ["train"] * 4 + ["test"],
    "ill": ["no", "yes", "yes", "no", "no", "yes", "no", "yes", "no", "no"],
}
OPTIONS = {"label_column": "ill", "client_column": "site", "split_column": "split"}


def written(folder, columns=COLUMNS, kind="csv"):
    path = folder / f"patients.{kind}"
    table = pyarrow.table(columns)
    if kind == "csv":
        pyarrow.csv.write_csv(table, path)
    elif kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, path)
    return path


def read(path, root, **options):
    return load("table", root, path=path, **(OPTIONS | options))


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_columns_become_features_labels_and_owners(tmp_path, kind):
    source = read(written(tmp_path, kind=kind), tmp_path / "root")
    assert source.table.features == ["age", "sex=f", "sex=m", "smokes"]
    assert source.class_names == ("no", "yes") and source.num_classes == 2
    assert source.client_names == ("north", "south")
    assert source.y_train.tolist() == [0, 1, 1, 0, 1, 0, 1, 0]
    assert source.y_test.tolist() == [0, 0]
    assert source.owner_train.tolist() == [0, 0, 1, 1, 1, 1, 0, 1]
    np.testing.assert_array_equal(source.x_train[0], [30, 1, 0, 1])
    np.testing.assert_array_equal(source.x_train[3], [60, np.nan, np.nan, 1])
    assert np.isnan(source.x_train[2, 0]) and np.isnan(source.x_test[0, 3])


def test_what_is_kept_on_disk_is_the_same(tmp_path):
    path = written(tmp_path)
    first = read(path, tmp_path / "root")
    load.__globals__["_load"].cache_clear()
    again = read(path, tmp_path / "root")
    assert again is not first
    assert again.table == first.table and again.client_names == first.client_names
    np.testing.assert_array_equal(again.x_train, first.x_train)


def test_other_signs_between_columns_and_for_what_is_missing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a; b ;y\n1;2.5;x\n?;3.5;z\n4;NA;x\n5;1;z\n7;2;x\n")
    source = load("table", tmp_path / "root", path=path, label_column="y")
    assert source.table.features == ["a", "b"]
    assert int(np.isnan(np.concatenate([source.x_train, source.x_test])).sum()) == 2


def test_a_share_for_tests_is_taken_of_every_client_and_class(tmp_path):
    generator = np.random.default_rng(0)
    columns = {
        "x": generator.normal(size=400),
        "site": np.repeat(["a", "b"], [300, 100]),
        "y": np.where(generator.random(400) < 0.25, "ill", "well"),
    }
    options = {"split_column": None, "label_column": "y", "test_share": 0.3}
    source = read(written(tmp_path, columns), tmp_path / "root", **options)
    assert len(source.y_test) == 120
    for owner, size in ((0, 300), (1, 100)):
        assert abs((source.owner_test == owner).sum() - 0.3 * size) <= 2
    everything = np.concatenate([source.y_train, source.y_test])
    assert abs(source.y_test.mean() - everything.mean()) < 0.02


def test_numbers_as_classes_keep_their_order_and_a_list_gives_another(tmp_path):
    path = written(tmp_path, {"x": np.arange(10.0), "y": [10, 9] * 5})
    options = {"client_column": None, "split_column": None, "label_column": "y"}
    assert read(path, tmp_path / "root", **options).class_names == ("9", "10")
    listed = read(path, tmp_path / "root", **options, classes=("10", "9"))
    assert listed.class_names == ("10", "9")


def test_numbers_to_predict_are_no_classes(tmp_path):
    path = written(tmp_path, COLUMNS | {"stay": np.arange(10) / 2})
    source = read(path, tmp_path / "root", label_column="stay", task="regression")
    assert source.num_classes == 0 and source.y_train.dtype == np.float32
    assert source.y_test.tolist() == [2.0, 4.5]
    with pytest.raises(DataError, match="no classes, such as 0.5; task=regression"):
        read(path, tmp_path / "root", label_column="stay")
    with pytest.raises(DataError, match="'ill' holds 'no'; task=regression predicts numbers"):
        read(path, tmp_path / "root", task="regression")


CHANGED = {
    "nearest name": ({}, {"label_column": "il"}, "data.label_column.*did you mean ill"),
    "feature": ({}, {"feature_columns": ("agee",)}, "'agee'.*did you mean age"),
    "no label": ({}, {"label_column": None}, "which column is to be predicted.*age, sex"),
    "empty client": (
        {"site": ["north"] * 4 + ["east"] + ["north"] * 5},
        {},
        "the client 'east' has no row to train with; its 1 are for tests",
    ),
    "class for tests only": (
        {"ill": ["no"] * 4 + ["maybe"] + ["yes"] * 5},
        {},
        "the class 'maybe' occurs among the rows for tests only",
    ),
    "class in no row": ({}, {"classes": ("no", "yes", "maybe")}, "'maybe' occurs in no row"),
    "unknown class": ({}, {"classes": ("no", "si")}, "'yes', which is none of the classes no, si"),
    "one class": ({"ill": ["no"] * 10}, {}, "one class, 'no'"),
    "missing label": ({"ill": ["no", None, "yes"] + ["no"] * 7}, {}, "1 of 10 rows have no value"),
    "missing client": ({"site": ["a"] * 9 + [None]}, {}, "nobody knows whose they are"),
    "date": (
        {"age": [f"2024-01-{day:02d}" for day in range(1, 11)]},
        {},
        "the column 'age' holds dates.*data.drop_columns",
    ),
    "other date": ({"age": ["3.12.1970"] * 10}, {}, "the column 'age' holds dates"),
    "one value": ({"age": [7] * 10}, {}, "'age' has one value, 7, in all rows"),
    "no value": ({"age": [None] * 10}, {}, "'age' has no value in any row"),
    "identifier": (
        {"age": [f"P{n}" for n in range(10)]},
        {"categories": (("age", ("P1",)), ("agee", ("x",)))},
        "data.categories names the column 'agee'.*did you mean age",
    ),
    "split": ({"split": ["train"] * 9 + ["validation"]}, {}, "'validation'; a split is train or"),
    "role as feature": ({}, {"feature_columns": ("age", "site")}, "'site' cannot be a feature"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_what_is_wrong_is_said_by_name(tmp_path, case):
    changes, options, why = CHANGED[case]
    with pytest.raises(DataError, match=why):
        read(written(tmp_path, COLUMNS | changes), tmp_path / "root", **options)


def test_a_column_of_names_is_refused_unless_it_is_left_out(tmp_path):
    names = [f"P{number}" for number in range(60)]
    columns = {"name": names, "x": np.arange(60.0), "y": ["a", "b"] * 30}
    options = {"client_column": None, "split_column": None, "label_column": "y"}
    path = written(tmp_path, columns)
    with pytest.raises(DataError, match="'name' holds 60 different texts.*data.drop_columns"):
        read(path, tmp_path / "root", **options)
    source = read(path, tmp_path / "root", **options, drop_columns=("name",))
    assert source.table.features == ["x"]


@pytest.mark.parametrize("text", ["", "a,a,y\n1,2,x\n", "a,y\n", "a,y\n1,x\n2\n"])
def test_files_that_are_no_tables(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError, match="t.csv: "):
        TableFile(path)
    with pytest.raises(DataError, match="no such file"):
        TableFile(tmp_path / "none.parquet")
    (tmp_path / "t.xlsx").write_text("")
    with pytest.raises(DataError, match="one of these kinds: .csv"):
        TableFile(tmp_path / "t.xlsx")


def test_a_file_in_another_encoding_is_told_apart_from_a_damaged_one(tmp_path):
    file = tmp_path / "patients.csv"
    file.write_bytes("age,town\n30,K\u00f6ln\n31,Bonn\n".encode("latin-1"))
    with pytest.raises(DataError, match="the column 'town' holds texts that are not UTF-8"):
        load("table", tmp_path, path=file, label_column="town")


def test_a_client_column_divides_and_other_sources_have_none(tmp_path):
    path = written(tmp_path)
    data = DataSettings(source="table", path=str(path), root=str(tmp_path / "root"), **OPTIONS)
    assert data.partition == "natural"
    split = division(data, 2, 0).split
    assert [len(part) for part in split.train] == [3, 5]
    assert [len(part) for part in split.test] == [1, 1]
    with pytest.raises(DataError, match="set data.clients=2"):
        division(data, 1, 0)
    with pytest.raises(SettingsError, match="data.label_column is for tables"):
        division(DataSettings(source="digits", label_column="y"), 2, 0)


def test_numbers_are_divided_by_rules_that_look_at_no_label(tmp_path):
    path = written(tmp_path, COLUMNS | {"stay": np.arange(10) / 2})
    values = {"source": "table", "path": str(path), "root": str(tmp_path / "root")}
    data = DataSettings(**values, label_column="stay")
    parts = division(data, 2, 0, "regression").split
    assert sorted(np.concatenate(parts.train).tolist()) == list(range(8))
    with pytest.raises(DataError, match="rule shards divides by labels.*iid, natural"):
        division(data.model_copy(update={"partition": "shards"}), 2, 0, "regression")
