"""Training by the server before round 1."""

import numpy as np
import pytest

from fedivon_app.core.metrics import classification
from fedivon_app.core.predict import predict_mean
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.compose import compose
from fedivon_app.datasets.loading import division, tensors
from fedivon_app.methods import method, settings_of
from fedivon_app.server.pretraining import examples, pretrain
from fedivon_app.server.setup import prepare


def settings_with(*overrides, strategy="flipout"):
    words = [
        "pretraining.fraction=0.3",
        "pretraining.epochs=6",
        "client.learning_rate=0.01",
        *overrides,
    ]
    return compose(settings_of, "digits-fischer", strategy, words)


def accuracy(settings, flat, parts, payload):
    images, labels = tensors(*parts["test"], settings.data.scaling, "cpu")
    return classification(predict_mean(flat, payload.posterior, images), labels.numpy())["accuracy"]


@pytest.mark.parametrize("strategy", ["fedavg", "fedivon", "flipout", "mc-dropout", "fedlaplace"])
def test_every_method_starts_better_after_it(strategy):
    rate = "client.learning_rate=0.3" if strategy == "fedivon" else "client.learning_rate=0.01"
    settings = settings_with(rate, strategy=strategy)
    flat, (*_, parts) = prepare(settings)
    start = method(strategy).strategy(settings).begin(flat.mean())
    trained = pretrain(settings, start, flat)
    assert accuracy(settings, flat, parts, trained) > max(
        0.6, accuracy(settings, flat, parts, start)
    )
    assert (trained.posterior.precision is None) == (start.posterior.precision is None)
    again = pretrain(settings, start, flat)
    np.testing.assert_array_equal(trained.posterior.mean, again.posterior.mean)


def test_it_ends_when_the_validation_accuracy_no_longer_rises(caplog):
    """With a rate of nothing no epoch is better than the first, so it ends after 1 + patience."""
    settings = settings_with(
        "pretraining.patience=2", "client.learning_rate=1e-12", "pretraining.epochs=50"
    )
    flat, _ = prepare(settings)
    start = method("flipout").strategy(settings).begin(flat.mean())
    with caplog.at_level("INFO", logger="fedivon"):
        pretrain(settings, start, flat)
    epochs = [
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith("pretraining epoch")
    ]
    assert len(epochs) == 3 and epochs[-1].startswith("pretraining epoch 3/50")


def test_its_examples_are_a_fraction_and_validation_is_apart():
    settings = settings_with("data.holdout=100", "pretraining.validation=0.2")
    source, train, validation = examples(settings)
    split = division(settings.data, 10, settings.seed).split
    pool = len(source.y_train) - 100
    assert len(train) + len(validation) == int(0.3 * pool)
    assert len(validation) == int(0.2 * int(0.3 * pool))
    assert not set(train) & set(validation)
    assert not (set(train) | set(validation)) & set(split.holdout)


def test_without_data_it_says_so(tmp_path):
    words = ["data.source=nodes", "data.shape=[8,8,1]", "data.num_classes=10"]
    with pytest.raises(SettingsError, match="pretraining needs data on the server"):
        examples(settings_with(*words))
    settings = settings_with(strategy="bayes-admm")
    with pytest.raises(
        SettingsError, match="clients keep nothing from round to round, and those of bayes-admm do"
    ):
        pretrain(settings, method("bayes-admm").strategy(settings).begin(np.zeros(3)), None)
    with pytest.raises(SettingsError, match="is 1: too few to train and validate"):
        examples(settings_with("pretraining.fraction=0.001"))
    x = np.zeros((40, 8, 8), np.uint8)
    y = np.arange(40) % 10
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    _, train, validation = examples(
        settings_with(*words, f"data.path={tmp_path / 'own.npz'}", "pretraining.fraction=0.5")
    )
    assert (len(train), len(validation)) == (18, 2)
