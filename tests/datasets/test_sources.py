"""Sources by name: what they hold, what they say of bad files, and how they are kept on disk."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.datasets import sources
from fedivon_app.datasets.scaling import SCALINGS, inputs
from fedivon_app.datasets.sources import load
from tests.datasets.archives import save

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
