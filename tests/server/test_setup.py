"""What the server starts a run with."""

import numpy as np
import pytest

from fedivon_app.core.errors import SettingsError
from fedivon_app.datasets.loading import division
from fedivon_app.server.setup import prepare
from tests.server.helpers import demo


def test_the_network_of_a_seed_is_always_the_same():
    one, same, other = (prepare(demo(f"seed={seed}")).flat.mean() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_held_out_examples_are_nobodys():
    settings = demo("data.holdout=100")
    divided = division(settings.data, 20, 0)
    split = divided.split
    held_out = prepare(settings).data.parts["holdout"]
    assert len(held_out.x) == len(held_out.y) == 100
    np.testing.assert_array_equal(held_out.x, divided.source.x_train[split.holdout])
    np.testing.assert_array_equal(held_out.y, divided.source.y_train[split.holdout])
    assert not set(split.holdout) & set(np.concatenate(split.train))


def test_a_server_holds_out_examples_of_its_own_file(tmp_path):
    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    y = np.arange(20) % 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    words = ["data.source=nodes", "data.shape=[2]", "data.num_classes=2"]
    words += [f"data.path={tmp_path / 'own.npz'}"]
    parts = prepare(demo(*words, "data.holdout=6")).data.parts
    held_out = parts["holdout"]
    assert len(held_out.x) == 6 and len(parts["test"].x) == 4
    np.testing.assert_array_equal(held_out.y, (held_out.x[:, 0] / 2) % 2)
    with pytest.raises(SettingsError, match="data.holdout is 21, but .*own.npz has only 20"):
        prepare(demo(*words, "data.holdout=21"))


def test_a_strategy_is_told_of_the_network_and_the_data():
    prepared = prepare(demo())
    architecture = prepared.architecture
    assert (architecture.shape, architecture.num_classes) == ((8, 8, 1), 10)
    assert architecture.slices == prepared.flat.slices
    assert sum(block.stop - block.start for block in architecture.blocks) == len(prepared.flat)


def test_a_server_without_data_needs_to_be_told_the_shape():
    with pytest.raises(SettingsError, match="say data.shape and data.num_classes"):
        prepare(demo("data.source=nodes"))
    data = prepare(demo("data.source=nodes", "data.shape=[8,8,1]", "data.num_classes=10")).data
    assert (data.shape, data.num_classes, data.parts) == ((8, 8, 1), 10, {})


def test_a_model_that_does_not_fit_the_data_is_named():
    words = ["data.source=nodes", "data.shape=[60]", "data.num_classes=10"]
    with pytest.raises(SettingsError, match="model: .*lenet"):
        prepare(demo(*words, "model.name=lenet", "model.options={}"))
