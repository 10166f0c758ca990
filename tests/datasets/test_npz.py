"""The user's own archives: served as they were saved, found by name, refused by key."""

from pathlib import Path

import numpy as np
import pytest

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import DataError
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.sources import load
from fedivon_app.methods import settings_of
from tests.datasets.archives import save


def test_npz_is_served_as_it_was_saved(tmp_path, arrays):
    content = arrays(shape=(5, 4, 3))
    source = load("npz", tmp_path, path=save(tmp_path / "own.npz", **content))
    for key, array in content.items():
        assert np.array_equal(getattr(source, key), array)
    assert source.x_train.dtype == np.uint8 and source.y_train.dtype == np.int64
    assert (source.name, source.num_classes, source.shape) == ("npz", 3, (5, 4, 3))


def test_npz_keeps_owners_subclasses_float_tables_and_a_larger_number_of_classes(tmp_path, arrays):
    content = arrays()
    content |= {"x_train": np.linspace(-2, 2, 24).reshape(12, 2), "x_test": np.zeros((6, 2))}
    content |= {"owner_train": np.arange(12) % 2, "owner_test": np.arange(6) % 2}
    content |= {"subclass_train": np.arange(12), "subclass_test": np.arange(6)}
    source = load("npz", tmp_path, path=save(tmp_path / "own.npz", **content), num_classes=7)
    assert source.x_train.dtype == np.float32 and source.shape == (2,) and source.num_classes == 7
    assert source.owner_train.tolist() == [0, 1] * 6 and source.subclass_test.tolist() == list(
        range(6)
    )


def test_npz_turns_wide_integers_into_bytes_for_pictures_and_floats_for_tables(tmp_path, arrays):
    content = arrays()
    wide = {key: value.astype(np.int32) for key, value in content.items()}
    assert load("npz", tmp_path, path=save(tmp_path / "a.npz", **wide)).x_train.dtype == np.uint8
    flat = {
        key: value.reshape(len(value), -1) if key[0] == "x" else value
        for key, value in wide.items()
    }
    table = load("npz", tmp_path, path=save(tmp_path / "b.npz", **flat))
    assert table.x_train.dtype == np.float32 and np.array_equal(table.x_train, flat["x_train"])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"y_test": None}, {}, "no key 'y_test'"),
        ({"x_train": np.zeros(12)}, {}, "x_train has 1 dimensions"),
        ({"x_train": np.zeros((12, 3, 32, 32), np.uint8)}, {}, "the channels come last"),
        (
            {"x_test": np.zeros((0, 4, 4), np.uint8), "y_test": np.zeros(0, int)},
            {},
            "x_test is empty",
        ),
        ({"y_train": np.zeros(11, int)}, {}, "y_train has 11 rows, but x has 12"),
        ({"y_train": np.zeros((12, 1), int)}, {}, r"y_train has shape \(12, 1\)"),
        ({"y_train": np.full(12, 0.5)}, {}, "y_train holds float64; labels are integers"),
        ({"y_test": np.full(6, -1)}, {}, "y_test holds the label -1; labels begin at 0"),
        (
            {"y_test": np.full(6, 3)},
            {"num_classes": 3},
            "y_test holds the label 3, out of range for 3 classes",
        ),
        ({"x_test": np.full((6, 4, 4), np.nan)}, {}, "x_test holds values that are not finite"),
        ({"x_test": np.full((6, 4, 4), 1e300)}, {}, "x_test holds values that are not finite"),
        (
            {"x_train": np.full((12, 4, 4), 300)},
            {},
            "x_train holds integers from 300 to 300; pixels are 0 to 255",
        ),
        ({"x_train": np.full((12, 4, 4), "a")}, {}, "x_train holds <U1; numbers are needed"),
        ({"x_test": np.zeros((6, 5, 4), np.uint8)}, {}, "x_train and x_test differ in kind"),
        ({"x_test": np.zeros((6, 4, 4))}, {}, "x_train and x_test differ in kind"),
        ({"x_train": np.array([None] * 12)}, {}, "key 'x_train' cannot be read .Object arrays"),
        ({"owner_train": np.zeros(12, int)}, {}, "owner_train and owner_test belong together"),
        ({}, {"num_classes": 0}, "num_classes must be a whole number of at least 1"),
    ],
)
def test_a_faulty_npz_file_is_named_with_its_key_in_one_line(
    tmp_path, change, options, message, arrays
):
    content = {key: value for key, value in (arrays() | change).items() if value is not None}
    path = save(tmp_path / "own.npz", **content)
    with pytest.raises(DataError, match=message) as caught:
        load("npz", tmp_path, path=path, **options)
    assert "\n" not in str(caught.value)
    if options.get("num_classes") != 0:
        assert str(path) in str(caught.value)


def test_files_that_are_no_npz_archive_are_refused(tmp_path, arrays):
    def complaint(path):
        with pytest.raises(DataError) as caught:
            load("npz", tmp_path, path=path)
        return str(caught.value)

    assert complaint(tmp_path / "none.npz") == f"{tmp_path / 'none.npz'}: there is no such file."
    (tmp_path / "text.npz").write_text("not an archive")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "folder.npz").mkdir()
    whole = save(tmp_path / "whole.npz", **arrays(train=500)).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("text", "empty", "folder", "cut"):
        assert "not a readable .npz file" in complaint(tmp_path / f"{name}.npz")
    flipped = bytearray(whole)
    flipped[2000] ^= 255
    (tmp_path / "flipped.npz").write_bytes(flipped)
    assert "key 'x_train' cannot be read" in complaint(tmp_path / "flipped.npz")
    np.save(tmp_path / "bare.npy", np.zeros(3))
    assert "one bare array" in complaint(tmp_path / "bare.npy")
    assert "set path" in complaint(None)


def test_an_npz_file_is_found_from_the_working_folder_or_else_below_the_root(
    tmp_path, monkeypatch, arrays
):
    root = tmp_path / "root"
    here = tmp_path / "here"
    for folder in (root / "sets", here):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    save(root / "sets" / "letters.npz", **arrays(seed=1))
    save(here / "own.npz", **arrays(seed=2))
    below = load("npz", root, path="sets/letters.npz")
    assert np.array_equal(below.x_train, arrays(seed=1)["x_train"])
    assert np.array_equal(load("npz", root, path="own.npz").x_train, arrays(seed=2)["x_train"])
    monkeypatch.chdir(root)  # found from the working folder, and the same file
    assert load("npz", root, path="sets/letters.npz") is below
    monkeypatch.setenv("FEDIVON_DATA", str(root))
    monkeypatch.chdir(here)
    assert load("npz", path=Path("sets/letters.npz")) is below


def test_an_npz_file_that_is_in_neither_place_or_in_both_is_named_with_both(
    tmp_path, monkeypatch, arrays
):
    root = tmp_path / "root"
    here = tmp_path / "here"
    root.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)

    def complaint():
        with pytest.raises(DataError) as caught:
            load("npz", root, path="own.npz")
        return str(caught.value)

    assert complaint() == (
        f"own.npz: there is no such file in the working folder {here}, "
        f"nor below the data root {root}."
    )
    save(root / "own.npz", **arrays(seed=1))
    save(here / "own.npz", **arrays(seed=2))
    assert complaint() == (
        f"own.npz: this may be {here / 'own.npz'} or, below the data root, {root / 'own.npz'}; "
        "name the one that is meant by its absolute path."
    )
    named = load("npz", root, path=here / "own.npz")
    assert np.array_equal(named.x_train, arrays(seed=2)["x_train"])


@pytest.mark.parametrize(
    ("experiment", "words", "content"),
    [
        (
            "emnist-fedivon",
            ["data.source=npz", "data.path=letters.npz", "data.clients=10", "data.holdout=60"],
            {"train": 1200, "test": 24, "shape": (28, 28), "classes": 12},
        ),
        (
            "tiny-imagenet-personal-50",
            ["data.source=npz", "data.path=letters.npz"],
            {"train": 4000, "test": 200, "shape": (1, 1, 3), "classes": 200},
        ),
    ],
)
def test_an_experiment_takes_an_archive_below_the_root_by_its_name(
    experiment, words, content, tmp_path, arrays
):
    save(tmp_path / "letters.npz", **arrays(**content))
    told = [*words, f"data.root={tmp_path}"]
    settings = compose(settings_of, experiment, overrides=told)
    divided = division(settings.data, settings.data.clients, settings.seed)
    assert divided.source.num_classes == content["classes"]
    assert divided.source.class_names is None
    assert len(divided.split.train) == settings.data.clients


def test_superclasses_are_dealt_from_an_archive_of_any_name(tmp_path, arrays):
    content = arrays(train=2000, test=200, shape=(1, 1, 3), classes=20)
    for part in ("train", "test"):
        content[f"subclass_{part}"] = np.arange(len(content[f"y_{part}"])) % 100
    save(tmp_path / "cifar100-superclass.npz", **content)
    save(tmp_path / "mine.npz", **content)
    for words in ([], ["data.source=npz", "data.path=mine.npz"]):
        told = [*words, f"data.root={tmp_path}", "data.clients=10"]
        settings = compose(settings_of, "cifar100-personal-50", overrides=told)
        divided = division(settings.data, 10, settings.seed)
        for part in divided.split.train:
            held = np.unique(divided.source.subclass_train[part])
            assert len(held) == 20 and set(held % 20) == set(range(20))


def test_an_npz_file_of_a_known_name_comes_before_torchvision(tmp_path, arrays):
    content = arrays(shape=(28, 28), classes=10)
    save(tmp_path / "fmnist.npz", **content)
    source = load("fmnist", tmp_path)
    assert source.name == "fmnist" and source.num_classes == 10
    assert np.array_equal(source.x_test, content["x_test"])
    save(tmp_path / "mnist.npz", **(content | {"y_train": np.full(12, 10)}))
    with pytest.raises(DataError, match="label 10, out of range for 10 classes"):
        load("mnist", tmp_path)
