"""The operations that are counted are those that a client's training does."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.core.sampling import sampled
from fedivon_app.datasets.loading import division
from fedivon_app.methods import METHODS, settings_of
from fedivon_app.server.setup import prepare
from fedivon_app.tables.flops import gigaflops

FEATURES = 64  # of the 8x8 digits
CLASSES = 10
PER_CLASS = 20
EXAMPLES = 2 * PER_CLASS  # of a client that has two classes
EPOCHS = 3
TINY = [f"data.per_class={PER_CLASS}", f"client.epochs={EPOCHS}", "client.batch_size=16"]
PASS = 2 * EXAMPLES * FEATURES * CLASSES  # a product of matrices: forward, or of a gradient
OUTSIDE_TORCH = {"bayes-admm-full"}


def regression(strategy, *words):
    """The settings of logistic regression on a few digits."""
    return compose(settings_of, "digits-regression", strategy, [*TINY, *words])


def operations(settings, clients=1):
    """What was counted, as a whole number."""
    return round(gigaflops(settings, clients) * 1e9)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_counted(name):
    found = operations(regression(name))
    assert (found == 0) == (name in OUTSIDE_TORCH)


@pytest.mark.parametrize("name", ["fedavg", "fedivon", "fedprox", "scaffold", "bayes-admm"])
def test_a_linear_layer_costs_a_product_forward_and_one_for_the_gradient_of_its_weights(name):
    assert operations(regression(name)) == EPOCHS * 2 * PASS


def test_a_hidden_layer_costs_a_third_product_for_the_gradient_of_its_outputs():
    hidden = 7
    words = [
        "model.name=mlp",
        f"model.options={{sizes: [{hidden}], activation: relu}}",
    ]
    first = 2 * EXAMPLES * FEATURES * hidden
    second = 2 * EXAMPLES * hidden * CLASSES
    assert operations(regression("fedavg", *words)) == EPOCHS * (2 * first + 3 * second)


@pytest.mark.parametrize("model", ["linear", "lenet"])
def test_laplace_adds_as_much_as_an_epoch_and_a_forward_pass(model):
    """FedLaplace draws labels in a forward pass, and goes forward and back for the curvature.

    The squares of a linear layer are one product, as its gradient is; those of convolutions are
    summed over the examples besides.
    """
    words = ["client.epochs=1", f"model.name={model}"]
    plain = operations(regression("fedavg", *words))
    flat = prepare(regression("fedavg", *words)).flat
    with FlopCounterMode(display=False) as counter:
        flat.module(torch.zeros(EXAMPLES, 1, 8, 8))
    forward = counter.get_total_flops()
    convolutions = [part for part in flat.module.modules() if isinstance(part, torch.nn.Conv2d)]
    weights = sum(parameter.numel() for part in convolutions for parameter in part.parameters())
    laplace = operations(regression("fedlaplace", *words))
    assert laplace == 2 * plain + forward + 2 * EXAMPLES * weights
    assert laplace > plain == operations(regression("fedivon", *words))


def test_the_mean_is_over_clients_that_the_seed_draws():
    words = ["data.partition=dirichlet", "data.alpha=0.5", "seed=3"]
    settings = regression("fedavg", *words)
    sizes = [len(part) for part in division(settings.data, 5, seed=3).split.train]
    drawn = sampled(range(5), 2, seed=3, server_round=1)
    step = EPOCHS * 2 * 2 * FEATURES * CLASSES
    assert len(set(sizes)) > 1
    assert operations(settings, 2) == step * np.mean([sizes[client] for client in drawn])
    assert operations(settings, 99) == round(step * np.mean(sizes))


def test_nothing_stays(tmp_path, monkeypatch):
    """What clients keep goes to a temporary folder, and random numbers go on as they were."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("FEDIVON_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    gigaflops(regression("scaffold", "evaluation.personal=true"), clients=2)
    assert torch.equal(torch.rand(3), wanted)
    assert list(tmp_path.iterdir()) == [temporary] and not list(temporary.iterdir())


def test_data_that_are_not_there_are_said_so():
    with pytest.raises(SettingsError, match="data.clients is not known"):
        gigaflops(regression("fedavg", "data.clients=null"))
    words = ["dataset=null", "data.source=nodes", "data.shape=[8,8,1]", "data.num_classes=10"]
    with pytest.raises(DataError, match="each node names its own file"):
        gigaflops(regression("fedavg", *words))
