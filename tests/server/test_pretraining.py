"""Training by the server before round 1."""

import numpy as np
import pytest

from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.metrics import classification
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_mean
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


def first_of(settings, prepared):
    """Return what the settings' method begins with."""
    strategy = method(settings.strategy).strategy(settings, prepared.architecture)
    return strategy.begin(prepared.flat.mean())


def accuracy(settings, prepared, payload):
    test = prepared.data.parts["test"]
    images, labels = tensors(test.x, test.y, settings.data.scaling, "cpu")
    probabilities = predict_mean(prepared.flat, payload.posterior, images)
    return classification(probabilities, labels.numpy())["accuracy"]


@pytest.mark.parametrize("strategy", ["fedavg", "fedivon", "flipout", "mc-dropout", "fedlaplace"])
def test_every_method_starts_better_after_it(strategy):
    rate = "client.learning_rate=0.3" if strategy == "fedivon" else "client.learning_rate=0.01"
    settings = settings_with(rate, strategy=strategy)
    prepared = prepare(settings)
    start = first_of(settings, prepared)
    trained = pretrain(settings, start, prepared.flat)
    before = accuracy(settings, prepared, start)
    assert accuracy(settings, prepared, trained) > max(0.6, before)
    assert (trained.posterior.precision is None) == (start.posterior.precision is None)
    again = pretrain(settings, start, prepared.flat)
    np.testing.assert_array_equal(trained.posterior.mean, again.posterior.mean)


def test_it_ends_when_the_validation_accuracy_no_longer_rises(caplog):
    """With a rate of nothing no epoch is better than the first, so it ends after 1 + patience."""
    settings = settings_with(
        "pretraining.patience=2", "client.learning_rate=1e-12", "pretraining.epochs=50"
    )
    prepared = prepare(settings)
    start = first_of(settings, prepared)
    with caplog.at_level("INFO", logger="fedivon"):
        pretrain(settings, start, prepared.flat)
    epochs = [
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith("pretraining epoch")
    ]
    assert len(epochs) == 3 and epochs[-1].startswith("pretraining epoch 3/50")


def test_its_examples_are_a_fraction_and_validation_is_apart():
    settings = settings_with("data.holdout=100", "pretraining.validation=0.2")
    own = examples(settings)
    split = division(settings.data, 10, settings.seed).split
    pool = len(own.source.y_train) - 100
    assert len(own.train) + len(own.validation) == int(0.3 * pool)
    assert len(own.validation) == int(0.2 * int(0.3 * pool))
    assert not set(own.train) & set(own.validation)
    assert not (set(own.train) | set(own.validation)) & set(split.holdout)


def test_without_data_it_says_so(tmp_path):
    words = ["data.source=nodes", "data.shape=[8,8,1]", "data.num_classes=10"]
    with pytest.raises(SettingsError, match="pretraining needs data on the server"):
        examples(settings_with(*words))
    settings = settings_with(strategy="bayes-admm")
    with pytest.raises(
        SettingsError, match="clients keep nothing from round to round, and those of bayes-admm do"
    ):
        pretrain(settings, Payload(Posterior(np.zeros(3), np.ones(3))), None)
    with pytest.raises(SettingsError, match="is 1: too few to train and validate"):
        examples(settings_with("pretraining.fraction=0.001"))
    x = np.zeros((40, 8, 8), np.uint8)
    y = np.arange(40) % 10
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    own = examples(
        settings_with(*words, f"data.path={tmp_path / 'own.npz'}", "pretraining.fraction=0.5")
    )
    assert (len(own.train), len(own.validation)) == (18, 2)


def test_a_rate_that_is_far_too_large_is_told():
    settings = settings_with("client.learning_rate=1e30", strategy="fedavg")
    prepared = prepare(settings)
    with pytest.raises(
        SettingsError,
        match=r"pretraining diverged in epoch \d: .*try a smaller client.learning_rate",
    ):
        pretrain(settings, first_of(settings, prepared), prepared.flat)
