"""Sums of clipped gradients: against torch.func, and no example beyond its bound."""

import numpy as np
import pytest
import torch
from torch import nn

from fedivon_app.core import clipped, per_example
from fedivon_app.core.clipped import clipped_sum
from fedivon_app.core.flat import Flat
from fedivon_app.core.models import build

SHAPES = {  # of every model of linear layers and convolutions
    "linear": (9,),
    "mlp": (5, 5, 1),
    "lenet": (16, 16, 2),
    "acar-cnn": (16, 16, 3),
    "cnn6": (8, 8, 3),
    "zenke-cnn": (16, 16, 3),
}
OPTIONS = {"lenet": {"channels": (3, 4), "hidden": 6}, "cnn6": {"channels": (3, 4)}}


def examples(shape, count=7):
    torch.manual_seed(5)
    inputs = 3 * torch.randn(count, *shape)
    labels = torch.arange(count) % 4
    return (inputs.permute(0, 3, 1, 2) if len(shape) == 3 else inputs), labels


def network(name):
    torch.manual_seed(2)
    return Flat(build(name, SHAPES[name], 4, **OPTIONS.get(name, {})).eval())


def lengths(flat, inputs, labels):
    each = [
        clipped_sum(flat, inputs[n : n + 1], labels[n : n + 1], 1e9, by_layers=False)
        for n in range(len(labels))
    ]
    return torch.stack(each).norm(dim=1)


@pytest.mark.parametrize("name", SHAPES)
def test_layers_give_what_torch_func_gives(name, monkeypatch):
    flat = network(name)
    inputs, labels = examples(SHAPES[name])
    bound = lengths(flat, inputs, labels).median().item()  # half of them are clipped
    expected = clipped_sum(flat, inputs, labels, bound, by_layers=False)
    monkeypatch.setattr(clipped, "_by_examples", None)
    found = clipped_sum(flat, inputs, labels, bound)
    assert (found - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize("at_once", [1, 5000])
def test_it_does_not_matter_how_many_examples_are_looked_at_together(at_once, monkeypatch):
    flat = network("lenet")
    inputs, labels = examples(SHAPES["lenet"])
    expected = clipped_sum(flat, inputs, labels, 0.1)  # all of them together
    monkeypatch.setattr(per_example, "_AT_ONCE", at_once)  # one by one, and two to four
    torch.testing.assert_close(clipped_sum(flat, inputs, labels, 0.1), expected)


@pytest.mark.parametrize("by_layers", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_no_example_counts_more_than_the_bound(name, by_layers):
    flat = network(name)
    inputs, labels = examples(SHAPES[name], 4)
    for bound in (1e-3, 1.0):
        for n in range(len(labels)):
            one = clipped_sum(
                flat, inputs[n : n + 1], labels[n : n + 1], bound, by_layers=by_layers
            )
            assert one.double().norm() <= bound


def test_an_example_that_is_added_moves_the_sum_by_at_most_the_bound():
    flat = network("lenet")
    inputs, labels = examples(SHAPES["lenet"])
    apart = clipped_sum(flat, inputs, labels, 0.5) - clipped_sum(flat, inputs[1:], labels[1:], 0.5)
    assert apart.norm() <= 0.5 * (1 + 1e-5)


def test_short_gradients_stay_as_they_are():
    flat = network("mlp")
    inputs, labels = examples(SHAPES["mlp"])
    flat.zero_gradient()
    nn.functional.cross_entropy(flat.module(inputs), labels, reduction="sum").backward()
    torch.testing.assert_close(clipped_sum(flat, inputs, labels, 1e6), flat.gradient)


@pytest.mark.parametrize("by_layers", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_an_example_whose_gradient_is_not_finite_counts_as_zero(name, value, by_layers):
    flat = network(name)
    inputs, labels = examples(SHAPES[name])
    expected = clipped_sum(flat, inputs[1:], labels[1:], 1.0, by_layers=by_layers)
    inputs = inputs.clone()
    inputs[0] = value
    found = clipped_sum(flat, inputs, labels, 1.0, by_layers=by_layers)
    assert found.isfinite().all()
    if value != 1e38:  # which may be finite still, and is then clipped
        torch.testing.assert_close(found, expected)
    assert (found - expected).norm() <= 1.00001


def test_factors_that_are_too_small_to_square_are_not_lost():
    """A large input and a small gradient at the output: their product is not small."""
    flat = Flat(nn.Linear(3, 2, bias=False))
    flat.load(np.array([-1e-18, 0, 0, 1e-18, 0, 0]))
    inputs = torch.tensor([[3.5e19, 0.0, 0.0]])  # the logits are 70 apart
    found = clipped_sum(flat, inputs, torch.tensor([1]), 1e-14)
    assert 0 < found.double().norm() <= 1e-14


def test_no_examples_have_no_gradient():
    flat = network("mlp")
    inputs, labels = examples(SHAPES["mlp"])
    assert not clipped_sum(flat, inputs[:0], labels[:0], 1.0).any()


class Mixing(nn.Module):
    """A network whose forward pass mixes examples, though its layers do not."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 4)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def test_a_network_that_may_mix_examples_is_given_them_one_by_one():
    """By its layers it looks innocent; one example would move the gradients of all others."""
    torch.manual_seed(0)
    flat = Flat(Mixing())
    inputs, labels = examples((5,))
    alone = clipped_sum(flat, inputs, labels, 1.0, by_layers=False)
    less = clipped_sum(flat, inputs[1:], labels[1:], 1.0, by_layers=False)
    assert (alone - less).norm() <= 1.00001


def test_layers_without_a_rule_are_left_to_torch_func():
    torch.manual_seed(0)
    flat = Flat(nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 4)))
    inputs, labels = examples((5,))
    one = clipped_sum(flat, inputs[:1], labels[:1], 0.01)
    assert one.norm() == pytest.approx(0.01, rel=1e-4)
