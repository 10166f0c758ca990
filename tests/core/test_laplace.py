"""Diagonal curvature against the definition, and that networks are left as they were."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedivon_app.core.flat import Flat
from fedivon_app.core.laplace import curvature_diagonal
from fedivon_app.core.models import build


def network(name="linear", shape=(4,), **options):
    torch.manual_seed(0)
    flat = Flat(build(name, shape, 3, **options))
    inputs = torch.randn(11, *(shape if len(shape) == 1 else (shape[2], *shape[:2])))
    return flat, inputs, torch.randint(0, 3, (11,))


def test_for_a_linear_model_it_is_the_diagonal_of_the_hessian():
    flat, inputs, labels = network()
    start = flat.vector.clone()

    def loss(vector):
        weight = vector[:12].view(3, 4)
        bias = vector[12:]
        return cross_entropy(inputs @ weight.T + bias, labels)

    expected = torch.autograd.functional.hessian(loss, start).diagonal()
    found = curvature_diagonal(flat, inputs, labels, batch_size=4)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_empirical_is_the_mean_of_squared_gradients():
    flat, inputs, labels = network("lenet", (8, 8, 1), channels=(2, 3), hidden=5)
    squares = torch.zeros_like(flat.vector)
    for row in range(11):
        flat.zero_gradient()
        cross_entropy(flat.module(inputs[row : row + 1]), labels[row : row + 1]).backward()
        squares += flat.gradient.square() / 11
    torch.testing.assert_close(
        curvature_diagonal(flat, inputs, labels, "empirical"), squares, rtol=1e-4, atol=1e-8
    )


def test_drawn_labels_give_the_same_on_average():
    flat, inputs, labels = network()
    torch.manual_seed(1)
    drawn = torch.stack(
        [curvature_diagonal(flat, inputs, labels, "fisher") for _ in range(600)]
    ).mean(0)
    torch.testing.assert_close(drawn, curvature_diagonal(flat, inputs, labels), rtol=0.1, atol=2e-3)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_and_modes_stay_as_they_were(training):
    flat, inputs, labels = network("resnet", (8, 8, 1), channels=(2, 4), blocks=1)
    flat.module.train(training)
    before = flat.buffers.copy()
    found = curvature_diagonal(flat, inputs, labels)
    assert (found >= 0).all() and found.sum() > 0 and flat.module.training is training
    assert (flat.buffers == before).all()
