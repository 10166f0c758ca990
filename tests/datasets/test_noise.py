"""Symmetric label noise: as often as it says, never to the same label, only where clients train."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedivon_app.core.data_settings import DataSettings
from fedivon_app.core.errors import DataError
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.noise import flip


@given(st.floats(0, 1), st.integers(2, 20), st.integers(0, 1000))
def test_flipped_labels_are_labels(rate, num_classes, seed):
    labels = np.random.default_rng(seed).integers(0, num_classes, 50)
    flipped = flip(labels, rate, num_classes, np.random.default_rng(seed))
    assert flipped.dtype == labels.dtype and flipped.min() >= 0 and flipped.max() < num_classes
    if rate == 0:
        assert np.array_equal(flipped, labels)
    if rate == 1:
        assert (flipped != labels).all()


def test_the_rate_holds_and_all_other_labels_are_equally_likely():
    labels = np.full(60_000, 3)
    flipped = flip(labels, 0.2, 10, np.random.default_rng(0))
    assert (flipped != 3).mean() == pytest.approx(0.2, abs=0.01)
    counts = np.bincount(flipped[flipped != 3], minlength=10)
    assert counts[3] == 0 and np.delete(counts, 3) == pytest.approx(np.full(9, 12_000 / 9), rel=0.1)


def test_noise_is_in_the_clients_training_labels_alone():
    plain = {"source": "digits", "partition": "labels", "labels_per_client": 5, "holdout": 200}
    true = division(DataSettings(**plain), 10, 0)
    noisy = division(DataSettings(**plain, label_noise=0.3), 10, 0)
    split = true.split
    assert all(
        np.array_equal(a, b) for a, b in zip(split.train, noisy.split.train, strict=True)
    )  # divided by true labels
    rows = np.concatenate(split.train)
    labels = true.source.y_train
    flipped = noisy.source.y_train
    assert (flipped[rows] != labels[rows]).mean() == pytest.approx(0.3, abs=0.04)
    assert np.array_equal(flipped[split.holdout], labels[split.holdout])
    assert np.array_equal(noisy.source.y_test, true.source.y_test)
    again = division(DataSettings(**plain, label_noise=0.3, root=None), 10, 0)
    assert np.array_equal(again.source.y_train, flipped)


def test_a_rate_beyond_one_is_refused():
    with pytest.raises(DataError, match="label_noise"):
        flip(np.zeros(3, int), 1.5, 2, np.random.default_rng(0))
