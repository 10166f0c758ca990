"""Readers of the user's own, by import path: how they are called, what they return, when anew."""

import importlib
import os
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.core.data_settings import DataSettings
from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.datasets import sources
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.partition import partition
from fedivon_app.datasets.sources import load, options_of

PRELUDE = """
import numpy as np
from fedivon_app.core.errors import DataError
from fedivon_app.datasets.base import Source

def table(seed=0, classes=3, **others):
    generator = np.random.default_rng(seed)
    made = {"x_train": generator.normal(size=(12, 2)), "x_test": generator.normal(size=(6, 2))}
    return made | {"y_train": np.arange(12) % classes, "y_test": np.arange(6) % classes} | others

calls = []
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that writes the module `ownreader` and imports it as a new process would."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    times = iter(range(1, 100))

    def write(text):
        file = folder / "ownreader.py"
        file.write_text(PRELUDE + textwrap.dedent(text))
        second = next(times)
        os.utime(file, (second, second))
        sys.modules.pop("ownreader", None)
        importlib.invalidate_caches()
        return importlib.import_module("ownreader")

    yield write
    sys.modules.pop("ownreader", None)


def complaint(tmp_path, name="read", kind=DataError, **options):
    with pytest.raises(kind) as caught:
        load(f"ownreader:{name}", tmp_path, **options)
    assert "\n" not in str(caught.value)
    assert f"data source 'ownreader:{name}'" in str(caught.value)
    return str(caught.value)


# --- what it returns


def test_a_source_is_taken_and_kept_like_any_other(tmp_path, module):
    made = module("""
        def read():
            calls.append(1)
            data = table(owner_train=np.arange(12) % 2, owner_test=np.arange(6) % 2)
            return Source(name="mine", num_classes=5, class_names=tuple("abcde"), **data)
    """)
    source = load("ownreader:read", tmp_path)
    assert (source.name, source.num_classes) == ("ownreader:read", 5)
    assert source.class_names == tuple("abcde")
    assert source.x_train.dtype == np.float32 and source.y_train.dtype == np.int64
    assert source.owner_test.tolist() == [0, 1] * 3
    assert isinstance(source.x_train, np.memmap) and not source.x_train.flags.writeable
    assert load("ownreader:read", tmp_path) is source
    sources._load.cache_clear()
    again = load("ownreader:read", tmp_path)
    assert np.array_equal(again.x_train, source.x_train) and again.class_names == tuple("abcde")
    assert made.calls == [1]


def test_a_mapping_of_arrays_is_checked_as_an_npz_file_is(tmp_path, module):
    made = module("""
        def read():
            return table()

        def lists():
            return {key: value.tolist() for key, value in table().items()}

        def subclasses():
            return table(subclass_train=np.arange(12), subclass_test=np.arange(6), num_classes=4)
    """)
    source = load("ownreader:read", tmp_path)
    assert isinstance(source, Source) and source.name == "ownreader:read"
    assert source.num_classes == 3 and source.shape == (2,)
    assert np.array_equal(source.x_train, made.table()["x_train"].astype(np.float32))
    listed = load("ownreader:lists", tmp_path)
    assert np.array_equal(listed.x_train, source.x_train) and listed.y_test.dtype == np.int64
    assert load("ownreader:subclasses", tmp_path).num_classes == 4
    assert load("ownreader:subclasses", tmp_path).subclass_train.tolist() == list(range(12))


def test_the_number_of_classes_may_be_an_option_whether_the_function_takes_it_or_not(
    tmp_path, module
):
    module("""
        def read():
            return table(num_classes=4)

        def told(num_classes=3):
            return table(classes=num_classes)
    """)
    assert load("ownreader:read", tmp_path).num_classes == 4
    assert load("ownreader:read", tmp_path, num_classes=7).num_classes == 7
    told = load("ownreader:told", tmp_path, num_classes=5)
    assert told.num_classes == 5 and told.y_train.max() == 4
    assert "label 2, out of range for 2 classes" in complaint(tmp_path, num_classes=2)
    assert "num_classes must be a whole number" in complaint(tmp_path, num_classes=0)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "returned a NoneType; a Source .* or a mapping with the arrays x_train, y_train"),
        ("(1, 2)", "returned a tuple; a Source"),
        ("{}", "no key 'x_train'; needed are x_train, y_train, x_test, y_test"),
        ("{'x_train': [[1.0]], 'y_train': [0]}", "no key 'x_test'"),
        ("table(owner_train=np.zeros(12, int))", "owner_train and owner_test belong together"),
        ("table(owners_train=1)", "returned the key 'owners_train', .*did you mean owner_train"),
        ("table(y_train=np.zeros(11, int))", "y_train has 11 rows, but x has 12"),
        ("table(y_train=np.full(12, 0.5))", "y_train holds float64; labels are integers"),
        ("table(x_train=[[1, 2], [3]])", "x_train is no array of numbers"),
        ("table(x_test=np.full((6, 2), np.nan))", "x_test holds values that are not finite"),
        ("table(num_classes='ten')", "num_classes must be a whole number of at least 1, not 'ten'"),
        ("Source('s', num_classes=2, **table())", "label 2, out of range for 2 classes"),
        ("Source('s', num_classes=3, **table(y_test=None))", "no key 'y_test'"),
    ],
)
def test_anything_else_is_named_with_what_would_be_right(tmp_path, module, returned, message):
    module(f"""
        def read():
            return {returned}
    """)
    with pytest.raises(DataError, match=message):
        load("ownreader:read", tmp_path)
    complaint(tmp_path)


def test_what_it_raises_is_told_with_its_line_and_a_data_error_passes_as_it_is(tmp_path, module):
    made = module("""
        def helper():
            return {}["height"]

        def read():
            return helper()

        def silent():
            raise RuntimeError

        def knows():
            raise DataError("table.csv: there is no column 'age'.")
    """)
    line = Path(made.__file__).read_text().splitlines().index("    return helper()") + 1
    assert f"failed in ownreader.py, line {line}: KeyError: 'height'" in complaint(tmp_path)
    assert complaint(tmp_path, "silent").endswith(": RuntimeError")
    with pytest.raises(DataError, match="^table.csv: there is no column 'age'.$"):
        load("ownreader:knows", tmp_path)
    assert not list((tmp_path / "arrays").glob("ownreader*/"))


# --- how it is called


def test_it_gets_what_its_signature_takes(tmp_path, module):
    made = module("""
        def read(path, columns=("a",), *, seed, sep=","):
            calls.append({"path": path, "columns": columns, "seed": seed, "sep": sep})
            return table(seed)

        def everything(**options):
            calls.append(options)
            return table()

        def defaults(path="own.csv", num_clients=9):
            calls.append((path, num_clients))
            return table()
    """)
    load("ownreader:read", tmp_path, path="x.csv", num_clients=3, seed=5, columns=["b", "c"])
    assert made.calls.pop() == {
        "path": tmp_path.cwd() / "x.csv",
        "columns": ["b", "c"],
        "seed": 5,
        "sep": ",",
    }
    load("ownreader:everything", tmp_path, num_clients=3, seed=5, name="n", depth=2)
    assert made.calls.pop() == {
        "root": tmp_path,
        "num_clients": 3,
        "seed": 5,
        "name": "n",
        "depth": 2,
    }
    load("ownreader:defaults", tmp_path)
    assert made.calls.pop() == ("own.csv", 9)
    assert options_of("ownreader:read") == {"columns", "sep", "num_classes"}
    assert options_of("ownreader:everything") == {"num_classes"}


def test_other_options_are_other_sources_and_a_seed_that_it_does_not_take_is_none(tmp_path, module):
    made = module("""
        def read(scale=1):
            calls.append(scale)
            return table()
    """)
    first = load("ownreader:read", tmp_path, seed=0, num_clients=2)
    assert load("ownreader:read", tmp_path, seed=1, num_clients=3) is first
    load("ownreader:read", tmp_path, scale=2)
    load("ownreader:read", tmp_path, scale="2")
    assert made.calls == [1, 2, "2"]


def test_what_does_not_fit_the_signature_is_named(tmp_path, module):
    module("""
        def read(columns=None, *, sep=","):
            return table()

        def needy(path, depth):
            return table()

        def placed(first, /):
            return table()

        nothing = 3
    """)
    message = complaint(tmp_path, colunms=["a"])
    assert "has no option 'colunms': did you mean columns?" in message
    assert "columns, num_classes, sep" in message
    assert "choose from columns, num_classes, sep" in complaint(tmp_path, zzz=1)
    assert "takes no path" in complaint(tmp_path, path="x.csv")
    assert "needs 'path', which is not given; set data.path" in complaint(tmp_path, "needy")
    assert "set data.options.depth" in complaint(tmp_path, "needy", path="x.csv")
    assert "'first' that cannot be given by name" in complaint(tmp_path, "placed")
    assert "cannot be called" in complaint(tmp_path, "nothing", SettingsError)
    assert "did you mean read?" in complaint(tmp_path, "raed", SettingsError)
    with pytest.raises(SettingsError, match="there is no module 'ownraeder' to import"):
        load("ownraeder:read", tmp_path)
    with pytest.raises(DataError, match="option columns of a source must be a plain value"):
        load("ownreader:read", tmp_path, columns={"a": 1})


# --- when it is read anew


def test_an_edited_reader_is_read_anew(tmp_path, module):
    one = "def read():\n    return table(seed=1)\n"
    other = "def read():\n    return table(seed=2)\n"
    made = module(one)
    first = load("ownreader:read", tmp_path)
    assert np.array_equal(first.x_train, made.table(1)["x_train"].astype(np.float32))
    module(other)
    second = load("ownreader:read", tmp_path)
    assert np.array_equal(second.x_train, made.table(2)["x_train"].astype(np.float32))


def test_a_process_that_has_the_old_reader_never_stores_old_data_as_new(tmp_path, module):
    made = module("def read():\n    return table(seed=1)\n")
    first = load("ownreader:read", tmp_path)
    with open(made.__file__, "a") as file:
        file.write("# edited, but not imported again\n")
    assert load("ownreader:read", tmp_path) is first
    assert len(list((tmp_path / "arrays").glob("ownreader*/"))) == 1
    importlib.reload(made)
    assert load("ownreader:read", tmp_path) is not first


@pytest.mark.parametrize("option", ["path", "table_file", "tables"])
def test_a_changed_file_that_it_is_given_is_read_anew(tmp_path, module, option):
    module(f"""
        def read({option}):
            first = {option}[0] if isinstance({option}, list) else {option}
            return table(int(open(first).read()))
    """)
    file = tmp_path / "table.txt"
    given = {option: [str(file)] if option == "tables" else str(file)}
    file.write_text("1")
    first = load("ownreader:read", tmp_path, **given)
    assert load("ownreader:read", tmp_path, **given) is first
    file.write_text("2")
    os.utime(file, ns=(1, 1))
    second = load("ownreader:read", tmp_path, **given)
    assert not np.array_equal(first.x_train, second.x_train)


def test_a_changed_file_in_the_folder_that_it_is_given_is_read_anew(tmp_path, module):
    module("""
        def read(path):
            return table(len(list(path.rglob("*.txt"))))
    """)
    folder = tmp_path / "tables" / "deep"
    folder.mkdir(parents=True)
    first = load("ownreader:read", tmp_path, path=tmp_path / "tables")
    assert load("ownreader:read", tmp_path, path=tmp_path / "tables") is first
    (folder / "one.txt").write_text("1")
    assert load("ownreader:read", tmp_path, path=tmp_path / "tables") is not first


# --- in the settings


def test_the_settings_give_it_their_options_and_the_common_ones_that_it_takes(tmp_path, module):
    made = module("""
        def read(num_clients, *, sep=",", labels=None):
            calls.append((num_clients, sep, labels))
            owners = {"owner_train": np.arange(12) % 3, "owner_test": np.arange(6) % 3}
            return table(**owners)
    """)
    common = {"source": "ownreader:read", "root": str(tmp_path), "partition": "natural"}
    divided = division(DataSettings(**common, options={"sep": ";"}, num_classes=8), 3, 0)
    assert made.calls == [(3, ";", "fine")]
    assert divided.source.num_classes == 8
    assert [part.tolist() for part in divided.split.test] == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(DataError, match="no option 'sepp': did you mean sep"):
        division(DataSettings(**common, options={"sepp": ";"}), 3, 0)
    with pytest.raises(SettingsError, match="data.clients is not set"):
        division(DataSettings(**common), None, 0)
    with pytest.raises(SettingsError, match=r"data.options.seed is no option of a source"):
        division(DataSettings(**common, options={"seed": 1}), 3, 0)


# --- partition rules by import path


def test_a_partition_rule_may_be_the_users_own(module):
    module("""
        def halves(labels, num_clients, generator, *, shift=0):
            return np.array_split((np.arange(len(labels)) + shift) % len(labels), num_clients)

        def fails(labels, num_clients, generator):
            raise KeyError("x")
    """)
    labels = np.zeros(6, int)
    parts = partition("ownreader:halves", labels, 2, 0, shift=1)
    assert [part.tolist() for part in parts] == [[1, 2, 3], [0, 4, 5]]
    with pytest.raises(DataError, match="has no option 'shfit': did you mean shift"):
        partition("ownreader:halves", labels, 2, 0, shfit=1)
    with pytest.raises(DataError, match="partition rule 'ownreader:fails' failed .*KeyError"):
        partition("ownreader:fails", labels, 2, 0)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[[0, 1]]", "returned 1 parts for 2 clients"),
        ("[[0, 1], []]", "the part of client 1 must be a list of at least one place"),
        ("[[0.5], [1]]", "the part of client 0 must be a list"),
        ("[[0], [6]]", "places from 0 to 6, but those in labels are 0 to 5"),
        ("[[0, 1], [1, 2]]", "must be disjoint"),
        ("3", "failed: TypeError"),
    ],
)
def test_what_an_own_partition_rule_returns_is_checked(module, returned, message):
    module(f"""
        def rule(labels, num_clients, generator):
            return {returned}
    """)
    with pytest.raises(DataError, match=f"^partition rule 'ownreader:rule'.*{message}"):
        partition("ownreader:rule", np.zeros(6, int), 2, 0)
