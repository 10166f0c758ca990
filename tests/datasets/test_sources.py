"""Sources by name: what they hold, what they say of bad files, and how they are kept on disk."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.datasets import cache, sources
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.scaling import SCALINGS, inputs
from fedivon_app.datasets.sources import load
from fedivon_app.methods import settings_of


def save(path, **content):
    np.savez(path, **content)
    return path


# --- sources without files


def test_digits_are_all_there_as_bytes_with_a_fixed_stratified_fifth_for_testing(tmp_path):
    source = load("digits", tmp_path)
    assert len(source.x_train) + len(source.x_test) == 1797
    assert source.x_train.dtype == np.uint8 and source.x_train.max() == 255
    assert set(np.unique(source.x_train)) <= set(np.rint(np.arange(17) * 255 / 16).astype(int))
    share = np.bincount(source.y_test) / (np.bincount(source.y_test) + np.bincount(source.y_train))
    assert np.all(abs(share - 0.2) < 0.005)
    assert (source.num_classes, source.shape) == (10, (8, 8, 1))
    assert load("digits", tmp_path, seed=5, num_clients=3) is source


def test_photos_are_patches_of_two_photographs_row_by_row(tmp_path):
    from sklearn.datasets import load_sample_images

    source = load("photos", tmp_path)
    assert (len(source.x_train), len(source.x_test), source.shape) == (174, 346, (8, 8, 1))
    assert source.class_names == ("temple", "flower") and source.x_test.dtype == np.uint8
    temple = load_sample_images().images[0].mean(axis=2)
    second = temple[:32, 32:64]  # the first is for training
    assert source.x_test[0, 0, 0] == np.rint(second[:4, :4].mean())
    assert source.x_test[0, 7, 2] == np.rint(second[28:, 8:12].mean())


def test_synthetic_sizes_owners_and_seed(tmp_path):
    source = load("synthetic", tmp_path, num_clients=8, seed=3)
    assert source.shape == (60,) and source.x_train.dtype == np.float32 and source.num_classes == 10
    train = np.bincount(source.owner_train, minlength=8)
    test = np.bincount(source.owner_test, minlength=8)
    assert len(train) == len(test) == 8 and np.all(train + test >= 50)
    assert np.allclose(test / (train + test), 0.2, atol=0.01)
    assert len(source.x_train) == train.sum() and len(source.y_test) == test.sum()
    other = load("synthetic", tmp_path, num_clients=8, seed=4)
    assert other.x_train.shape != source.x_train.shape or not np.array_equal(
        other.x_train, source.x_train
    )


def test_synthetic_inputs_have_the_stated_variances_within_a_client(tmp_path):
    source = load(
        "synthetic", tmp_path, num_clients=1, seed=0, size_log_deviation=0.0, size_min=20_000
    )
    expected = np.arange(1, 61) ** -1.2
    assert np.allclose(source.x_train.var(axis=0) / expected, 1, atol=0.05)


def test_synthetic_clients_spread_with_b(tmp_path):
    def spread(b):
        source = load("synthetic", tmp_path, num_clients=200, b=b, size_log_deviation=0.0)
        means = [source.x_train[source.owner_train == client].mean() for client in range(200)]
        return np.var(means)

    # The mean over 60 inputs of v_k has variance b + 1/60.
    assert spread(0.0) == pytest.approx(1 / 60, rel=0.4)
    assert spread(4.0) == pytest.approx(4, rel=0.4)


# --- the user's own files


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


# --- names and options


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mnsit", {}, "there is no data source 'mnsit': did you mean mnist"),
        ("digits", {"sise": 3}, "source digits has no option 'sise'"),
        ("synthetic", {"aa": 3}, "synthetic has no option 'aa'.*options: a, b, size_log_deviation"),
        ("digits", {"path": "x.npz"}, "source digits takes no path"),
        ("mnist", {"labels": "superclass"}, "mnist has no labels 'superclass'"),
        ("synthetic", {"a": -1}, "a must be a number at least 0, not -1"),
        ("synthetic", {"a": "x"}, "a must be a number at least 0, not 'x'"),
        ("synthetic", {"a": {}}, "option a of a source must be a plain value"),
        ("synthetic", {"num_clients": 0}, "num_clients must be a whole number of at least 1"),
        ("synthetic", {"seed": -1}, "seed must be a whole number of at least 0"),
        ("synthetic", {"size_min": 1}, "size_min must be a whole number of at least 2"),
    ],
)
def test_wrong_names_and_options_are_named(tmp_path, name, options, message):
    with pytest.raises(SettingsError if name == "mnsit" else DataError, match=message):
        load(name, tmp_path, **options)


def test_the_root_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDIVON_DATA", str(tmp_path / "data"))
    assert sources.default_root() == tmp_path / "data"
    load("digits")
    assert list((tmp_path / "data" / "arrays").glob("digits-*/x_train.npy"))
    monkeypatch.delenv("FEDIVON_DATA")
    assert sources.default_root() == Path.home() / ".cache" / "fedivon-data"


# --- the arrays on disk


def test_arrays_are_mapped_read_only_and_the_same_object_is_returned(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays())
    source = load("npz", tmp_path, path=path)
    assert isinstance(source.x_train, np.memmap) and not source.x_train.flags.writeable
    assert load("npz", tmp_path, path=str(path)) is source
    with pytest.raises(ValueError):
        source.x_train[0] = 0


def test_a_changed_file_is_read_anew(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays(seed=0))
    first = load("npz", tmp_path, path=path)
    save(path, **arrays(seed=1))
    os.utime(path, ns=(1, 1))
    second = load("npz", tmp_path, path=path)
    assert np.array_equal(second.x_train, arrays(seed=1)["x_train"])
    assert np.array_equal(first.x_train, arrays(seed=0)["x_train"])


def test_another_process_opens_the_stored_arrays_without_reading_the_file(
    tmp_path, monkeypatch, arrays
):
    path = save(tmp_path / "own.npz", **arrays())
    load("npz", tmp_path, path=path)
    sources._load.cache_clear()

    def refuse(*arguments):
        raise AssertionError("the file was read again")

    monkeypatch.setattr("fedivon_app.datasets.npz.read_arrays", refuse)
    assert np.array_equal(load("npz", tmp_path, path=path).y_train, arrays()["y_train"])


def test_damaged_arrays_are_built_again(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays())
    load("npz", tmp_path, path=path)
    sources._load.cache_clear()
    (stored,) = (tmp_path / "arrays").glob("npz-*/x_train.npy")
    stored.write_bytes(b"")
    source = load("npz", tmp_path, path=path)
    assert np.array_equal(source.x_train, arrays()["x_train"])
    assert isinstance(source.x_train, np.memmap)


def test_a_root_that_cannot_be_written_serves_from_memory(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays())
    (tmp_path / "root").write_text("a file, not a folder")
    source = load("npz", tmp_path / "root", path=path)
    assert np.array_equal(source.x_train, arrays()["x_train"])
    assert not source.x_train.flags.writeable


def test_the_second_of_two_writers_leaves_the_first_ones_arrays(tmp_path, arrays):
    first, second = (Source("own", **arrays(seed=seed), num_classes=3) for seed in (0, 1))
    cache.store(tmp_path / "own", first)
    cache.store(tmp_path / "own", second)
    assert np.array_equal(cache.open_source(tmp_path / "own").x_train, first.x_train)
    assert [entry.name for entry in tmp_path.iterdir()] == ["own"]


def test_racing_processes_all_succeed_and_leave_one_copy(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays(train=2000, shape=(28, 28)))
    code = (
        "import sys; from fedivon_app.datasets.sources import load; "
        "print(load('npz', sys.argv[1], path=sys.argv[2]).x_train.sum())"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(path)]
    house = Path(sources.__file__).parents[1]
    racers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=house) for _ in range(3)
    ]
    outputs = [racer.communicate(timeout=60)[0] for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    assert set(outputs) == {f"{arrays(train=2000, shape=(28, 28))['x_train'].sum()}\n"}
    assert len([entry for entry in (tmp_path / "arrays").iterdir() if entry.is_dir()]) == 1


# --- inputs


def test_inputs_scale_bytes_and_put_channels_first():
    grey = np.array([[[0, 51], [102, 255]]], np.uint8)
    assert inputs(grey, "raw").tolist() == [[[[0, 51], [102, 255]]]]
    assert torch.allclose(inputs(grey, "unit"), torch.tensor([[[[0, 0.2], [0.4, 1]]]]))
    assert torch.allclose(inputs(grey, "signed"), torch.tensor([[[[-1, -0.6], [-0.2, 1]]]]))
    colour = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    tensor = inputs(colour, "raw")
    assert tensor.shape == (2, 3, 4, 5) and tensor.dtype == torch.float32 and tensor.is_contiguous()
    assert tensor[1, 2, 3, 0] == colour[1, 3, 0, 2]


def test_inputs_pass_floats_as_they_are_and_never_write_to_the_source(tmp_path, arrays):
    table = np.array([[0.5, -3.0]], np.float32)
    for scaling in SCALINGS[:3]:
        assert inputs(table, scaling).tolist() == [[0.5, -3.0]]
    with pytest.raises(DataError, match="not whole numbers"):
        inputs(table, "tokens")
    stored = load("npz", tmp_path, path=save(tmp_path / "own.npz", **arrays()))
    inputs(stored.x_train, "raw").zero_()
    assert np.array_equal(stored.x_train, arrays()["x_train"])


def test_an_unknown_scaling_is_named():
    with pytest.raises(DataError, match="no scaling 'unti': did you mean unit"):
        inputs(np.zeros((1, 2, 2), np.uint8), "unti")


def test_importing_the_sources_loads_neither_torch_nor_torchvision_nor_sklearn():
    heavy = "{'torch', 'torchvision', 'sklearn'}"
    modules = "sys, fedivon_app.datasets.sources, fedivon_app.datasets.partition"
    code = f"import {modules}; print({heavy} & set(sys.modules))"
    house = Path(sources.__file__).parents[1]
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=house, check=True
    )
    assert result.stdout == "set()\n"
