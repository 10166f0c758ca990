"""Training by the server before round 1."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedivon_app.clients.fedavg import PointClient
from fedivon_app.clients.fedivon import FedIvonClient
from fedivon_app.clients.task import Learned
from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.metrics import classification
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_mean
from fedivon_app.core.variational import VariationalNetwork
from fedivon_app.datasets.loading import division, tensors
from fedivon_app.datasets.node_data import Partition
from fedivon_app.methods import method, settings_of
from fedivon_app.server import pretraining
from fedivon_app.server.pretraining import STREAM, examples, pretrain
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
    return strategy.begin(prepared.flat.mean(), prepared.flat.buffers)


def server_client(settings, state_root, epochs):
    """Return the client that the server trains, set to work for so many epochs at once."""
    own = examples(settings)
    several = settings.client.model_copy(update={"epochs": epochs})
    return method(settings.strategy).client(
        settings.model_copy(update={"client": several}),
        Partition(number=0, source=own.source, train=own.train, test=own.validation),
        state_root=state_root,
    )


def told(settings):
    return Instructions(round=STREAM + 1, learning_rate=settings.client.learning_rate)


@pytest.fixture
def accuracies(monkeypatch):
    """Return a function that sets what the validation finds, epoch by epoch."""

    def find(*values):
        found = iter(values)
        monkeypatch.setattr(pretraining, "classification", lambda *_: {"accuracy": next(found)})

    return find


def equal(one, other):
    np.testing.assert_array_equal(one.posterior.mean, other.posterior.mean)
    np.testing.assert_array_equal(one.posterior.precision, other.posterior.precision)
    np.testing.assert_array_equal(one.buffers, other.buffers)


def accuracy(settings, prepared, payload):
    test = prepared.data.parts["test"]
    images, labels = tensors(test.x, test.y, settings.data.scaling, torch.device("cpu"))
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


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("fedavg", []),
        ("fedavg", ["model.name=resnet", "model.options={channels: [4], blocks: 1}"]),
        ("fedprox", ["client.optimizer_state=fresh"]),
        ("fedivon", []),
        ("fedivon-personal", []),
        ("flipout", []),
        ("mc-dropout", []),
        ("fedlaplace", []),
    ],
)
def test_it_is_one_training_that_looking_on_does_not_change(strategy, words, tmp_path, accuracies):
    """Bit for bit what a client makes of as many epochs by itself."""
    settings = settings_with("pretraining.epochs=3", *words, strategy=strategy)
    prepared = prepare(settings)
    start = first_of(settings, prepared)
    accuracies(0.1, 0.2, 0.3)
    trained = pretrain(settings, start, prepared.flat)
    alone = server_client(settings, tmp_path, epochs=3).work(start, told(settings))
    equal(trained, alone.payload)


def test_the_prior_stays_where_it_is_and_adam_goes_on(tmp_path, accuracies):
    """Two epochs of Adam on mean NLL + KL(q || N(0, prior_variance)) / N, by hand.

    Under `client.prior=global` too, for before round 1 there is no server's posterior to go by.
    """
    settings = settings_with("pretraining.epochs=2", "client.prior=global")
    prepared = prepare(settings)
    start = first_of(settings, prepared)
    accuracies(0.1, 0.2)
    trained = pretrain(settings, start, prepared.flat)
    client = server_client(settings, tmp_path, epochs=2)
    task = client.task(told(settings))
    client.flat.load(start.posterior.mean)
    network = VariationalNetwork(client.flat, settings.client.sigma_init)
    adam = torch.optim.Adam(network.parameters(), lr=settings.client.learning_rate, fused=True)
    for _ in range(2):
        for rows in torch.randperm(len(task.labels), generator=task.generator).split(32):
            network.zero_gradient()
            task.loss(network(task.inputs[rows]), task.labels[rows]).backward()
            network.add_divergence(0.0, 1 / settings.client.prior_variance, len(task.labels))
            adam.step()
    assert settings.client.batch_size == 32
    by_hand = network.posterior()
    np.testing.assert_allclose(trained.posterior.mean, by_hand.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trained.posterior.precision, by_hand.precision, rtol=1e-4)


def test_the_best_epoch_counts_and_patience_ends_it(accuracies):
    settings = settings_with("pretraining.epochs=9", "pretraining.patience=2", strategy="fedivon")
    prepared = prepare(settings)
    start = first_of(settings, prepared)
    accuracies(0.5, 0.6, 0.6, 0.4)  # a fifth epoch would find no accuracy
    best = pretrain(settings, start, prepared.flat)
    accuracies(0.1, 0.2)
    two_epochs = settings_with("pretraining.epochs=2", strategy="fedivon")
    equal(best, pretrain(two_epochs, start, prepared.flat))


class SilentPoint(PointClient):
    """A client of somebody's own, which tells nobody how far it has come."""

    def train(self, start, task):
        for inputs, labels in task.batches():
            self.step(self.optimizer(task), task.loss(self.flat.module(inputs), labels))
        return Learned(Posterior(self.flat.mean()))


class SilentGaussian(FedIvonClient):
    """The same with a precision."""

    def train(self, start, task):
        optimizer = self.ivon(task, ess=1000, weight_decay=1e-4)
        for _ in task.batches():
            pass
        return Learned(optimizer.posterior())


class Idle(FedIvonClient):
    """A client that goes over no minibatch."""

    def train(self, start, task):
        return Learned(start.posterior)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (SilentGaussian, "the clients of fedivon do not show it.*`task.batches`"),
        (Idle, "counts epochs by `task.batches`, and the clients of fedivon train without it"),
    ],
)
def test_a_client_that_does_not_show_its_posterior_is_told_how(monkeypatch, kind, says):
    settings = settings_with(strategy="fedivon")
    prepared = prepare(settings)
    start = first_of(settings, prepared)
    monkeypatch.setattr(pretraining, "method", lambda name: SimpleNamespace(client=kind))
    with pytest.raises(SettingsError, match=says):
        pretrain(settings, start, prepared.flat)


def test_a_point_is_in_the_network_and_need_not_be_shown(monkeypatch):
    settings = settings_with(strategy="fedavg")
    prepared = prepare(settings)
    start = first_of(settings, prepared)
    monkeypatch.setattr(pretraining, "method", lambda name: SimpleNamespace(client=SilentPoint))
    trained = pretrain(settings, start, prepared.flat)
    assert accuracy(settings, prepared, trained) > max(0.6, accuracy(settings, prepared, start))


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
