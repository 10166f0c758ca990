"""Squares of per-example gradients from what layers see, against gradients example by example."""

import pytest
import torch
from torch import nn

from fedivon_app.core import laplace
from fedivon_app.core.flat import Flat
from fedivon_app.core.laplace import curvature_diagonal
from fedivon_app.core.models import build
from fedivon_app.core.per_example import layers_of


class Twice(nn.Module):
    """A layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(self.layer(x).tanh())


class Unseen(nn.Module):
    """A layer whose weights are used without it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return nn.functional.linear(x, self.layer.weight, self.layer.bias)


class Places(nn.Module):
    """A linear layer on sequences."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.last = nn.Linear(5, 4)

    def forward(self, x):
        return self.last(self.first(x).relu().mean(1))


def convolutions(**options):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, **options), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4, bias=False)
    )


NETWORKS = {
    "linear layers": (nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 4)), (6,)),
    "sequences": (Places(), (4, 3)),
    "convolution": (convolutions(), (2, 7, 6)),
    "stride, padding, dilation": (convolutions(stride=2, padding=1, dilation=2), (2, 9, 8)),
    "as large as before": (convolutions(padding="same"), (2, 6, 6)),
    "channels last": (build("lenet", (16, 16, 2), 4, channels=(3, 5), hidden=6), (2, 16, 16)),
    "groups without bias": (convolutions(groups=2, bias=False), (2, 6, 6)),
}
OTHERS = {
    "changed in place": (nn.Sequential(nn.Linear(6, 5), nn.ReLU(True), nn.Linear(5, 4)), (6,)),
    "used twice": (Twice(), (6,)),
    "weights used without the layer": (Unseen(), (6,)),
    "batch norm": (nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 4)), (6,)),
    "another padding": (convolutions(padding=1, padding_mode="reflect"), (2, 6, 6)),
    "more zeros on one side": (
        nn.Sequential(nn.Conv2d(2, 3, 2, padding="same"), nn.Flatten(), nn.LazyLinear(4)),
        (2, 5, 5),
    ),
}


def found(name, shape, network, kind, monkeypatch):
    torch.manual_seed(3)
    inputs = torch.randn(9, *shape)
    network(inputs)
    flat = Flat(network)
    labels = torch.randint(0, 4, (9,))
    torch.manual_seed(4)
    ours = curvature_diagonal(flat, inputs, labels, kind, batch_size=4)
    monkeypatch.setattr(laplace, "layers_of", lambda module: None)
    torch.manual_seed(4)
    return ours, curvature_diagonal(flat, inputs, labels, kind, batch_size=4)


@pytest.mark.parametrize("kind", ["ggn", "fisher", "empirical"])
@pytest.mark.parametrize("name", NETWORKS | OTHERS)
def test_it_is_what_examples_give_one_by_one(name, kind, monkeypatch):
    network, shape = (NETWORKS | OTHERS)[name]
    ours, plain = found(name, shape, network, kind, monkeypatch)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-7)
    assert ours.sum() > 0


@pytest.mark.parametrize("name", NETWORKS)
def test_no_gradient_of_an_example_is_written_down(name, monkeypatch):
    network, shape = NETWORKS[name]
    network(torch.randn(2, *shape))
    monkeypatch.setattr(laplace, "vmap", None)
    total = curvature_diagonal(Flat(network), torch.randn(5, *shape), torch.tensor([0, 1, 2, 3, 0]))
    assert torch.isfinite(total).all()


def test_shared_weights_are_left_to_the_other_way():
    first = nn.Linear(4, 4)
    second = nn.Linear(4, 4)
    second.weight = first.weight
    assert layers_of(nn.Sequential(first, second)) is None
