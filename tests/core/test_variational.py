"""Gaussian networks: what Flipout computes, its gradients, the divergence, a known posterior."""

import numpy as np
import pytest
import torch
from torch import nn

from fedivon_app.core.flat import Flat
from fedivon_app.core.meanfield import inverse_softplus
from fedivon_app.core.models import MODELS, build
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.variational import VariationalNetwork


def flat_of(name: str, shape=(16, 16, 1), **options) -> Flat:
    torch.manual_seed(0)
    return Flat(build(name, shape, 3, **options))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "tokens"])
def test_every_model_of_the_zoo_becomes_variational(name):
    shape = (32, 32, 3) if "cnn" in name else (16, 16, 1)
    flat = flat_of(name, shape)
    network = VariationalNetwork(flat, 0.05)
    inputs = torch.randn(4, shape[2], *shape[:2])
    nn.functional.cross_entropy(network(inputs), torch.tensor([0, 1, 2, 0])).backward()
    assert network.rho.grad.abs().sum() > 0
    for gradient in flat.named_parameters(network.rho.grad).values():
        assert gradient.abs().sum() > 0  # every layer's deviations learn, batch norm's included
    assert flat.gradient.abs().sum() > 0


def test_without_deviation_it_is_the_module_itself():
    flat = flat_of("resnet", channels=(4, 8), blocks=1)
    inputs = torch.randn(5, 1, 16, 16)
    network = VariationalNetwork(flat, 1e-9, smallest_sigma=1e-9)
    torch.testing.assert_close(network(inputs), flat.module(inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flipout", [True, False])
def test_the_output_has_the_mean_and_variance_of_the_weights(flipout):
    """For y = w x + b the mean is w x + b, the variance sum_i sigma_i^2 x_i^2 + sigma_b^2.

    It is the same for a 1x1 convolution.
    """
    torch.manual_seed(1)
    linear = Flat(nn.Linear(3, 2))
    convolution = Flat(nn.Conv2d(3, 2, 1))
    convolution.load(linear.vector)
    sigma = np.linspace(0.2, 0.9, 8).astype(np.float32)
    x = torch.tensor([1.0, -2.0, 0.5])
    weight = sigma[:6].reshape(2, 3)
    bias = sigma[6:]
    variance = (weight**2 * x.numpy() ** 2).sum(1) + bias**2
    for flat, inputs in ((linear, x[None]), (convolution, x[None, :, None, None])):
        network = VariationalNetwork(flat, sigma, flipout)
        with torch.no_grad():
            draws = torch.stack([network(inputs).flatten() for _ in range(8_000)])
        torch.testing.assert_close(draws.mean(0), flat.module(inputs).flatten(), atol=0.05, rtol=0)
        np.testing.assert_allclose(draws.var(0), variance, rtol=0.06)


def test_flipout_decorrelates_the_examples_of_a_minibatch():
    flat = Flat(nn.Linear(4, 1))
    inputs = torch.ones(2, 4)

    def correlation(flipout):
        network = VariationalNetwork(flat, 0.5, flipout)
        with torch.no_grad():
            return np.corrcoef(
                np.array([network(inputs).flatten().numpy() for _ in range(3000)]).T
            )[0, 1]

    assert correlation(False) == pytest.approx(1)
    assert abs(correlation(True)) < 0.06


def gradients(network, inputs, labels, repetitions):
    """The gradients for mean and rho of one fixed minibatch, over draws of the weights."""
    drawn = []
    for _ in range(repetitions):
        network.zero_gradient()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        drawn.append(torch.cat([network.mean.grad, network.rho.grad]).numpy().copy())
    return np.array(drawn)


def test_flipout_has_the_same_expected_gradient_and_less_variance():
    torch.manual_seed(2)
    flat = flat_of("lenet", channels=(3, 4), hidden=8)
    inputs = torch.randn(32, 1, 16, 16)
    labels = torch.randint(0, 3, (32,))
    plain, flipout = (
        gradients(VariationalNetwork(flat, 0.1, way), inputs, labels, 400) for way in (False, True)
    )
    error = np.sqrt((plain.var(0) + flipout.var(0)) / 400)
    deviation = (plain.mean(0) - flipout.mean(0)) / np.maximum(error, 1e-8)
    assert np.abs(deviation).mean() < 1.0  # 0.8 for standard normal numbers
    half = len(flat)
    assert flipout[:, :half].var(0).sum() < 0.7 * plain[:, :half].var(0).sum()
    assert flipout[:, half:].var(0).sum() < 0.7 * plain[:, half:].var(0).sum()


@pytest.mark.parametrize("vector_prior", [False, True])
def test_the_divergence_and_its_gradient_are_those_of_autograd(vector_prior):
    rng = np.random.default_rng(0)
    flat = flat_of("linear")
    sigma = rng.uniform(0.01, 2, len(flat)).astype(np.float32)
    prior_mean = 0.0
    prior_precision = 0.01
    if vector_prior:
        prior_mean = torch.from_numpy(rng.standard_normal(len(flat)).astype(np.float32))
        prior_precision = torch.rand(len(flat)) + 0.1
    network = VariationalNetwork(flat, sigma)
    value = network.add_divergence(prior_mean, prior_precision, 50)
    mean = flat.vector.clone().requires_grad_()
    rho = network.rho.detach().clone().requires_grad_()
    scale = torch.as_tensor(prior_precision).rsqrt().expand(len(flat))
    target = torch.distributions.Normal(torch.as_tensor(prior_mean).expand(len(flat)), scale)
    own = torch.distributions.Normal(mean, nn.functional.softplus(rho))
    expected = torch.distributions.kl_divergence(own, target).sum() / 50
    expected.backward()
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(network.mean.grad, mean.grad)
    torch.testing.assert_close(network.rho.grad, rho.grad, rtol=1e-4, atol=1e-6)


def test_the_posterior_keeps_what_was_loaded_and_the_floor():
    flat = flat_of("linear")
    sigma = np.geomspace(1e-8, 5, len(flat)).astype(np.float32)
    posterior = VariationalNetwork(flat, sigma, smallest_sigma=1e-4).posterior()
    np.testing.assert_allclose(np.sqrt(posterior.variance), np.maximum(sigma, 1e-4), rtol=2e-3)
    np.testing.assert_array_equal(posterior.mean, flat.mean())
    values = torch.tensor([1e-5, 1e-2, 1.0, 30.0])
    torch.testing.assert_close(
        nn.functional.softplus(inverse_softplus(values)), values, rtol=1e-4, atol=0
    )


def test_bayesian_logistic_regression_without_data_effect_returns_to_the_prior():
    """With the divergence alone, gradient descent ends at the prior."""
    flat = flat_of("linear")
    network = VariationalNetwork(flat, 0.05)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    for _ in range(600):
        network.zero_gradient()
        network.add_divergence(0.5, 4.0, 1)
        optimizer.step()
    posterior = network.posterior()
    assert posterior.kl(Posterior(np.full(len(flat), 0.5), np.full(len(flat), 4.0))) < 1e-3 * len(
        flat
    )


def test_linear_regression_reaches_the_closed_form():
    """With orthogonal inputs the exact posterior is diagonal: s = 1 + sum x^2, m = sum x y / s.

    The noise and the prior have variance 1.
    """
    torch.manual_seed(3)
    orthogonal = torch.linalg.qr(torch.randn(40, 3)).Q * torch.tensor([2.0, 4.0, 6.0])
    targets = orthogonal @ torch.tensor([1.0, -1.0, 0.5]) + torch.randn(40)
    flat = Flat(nn.Linear(3, 1, bias=False))
    network = VariationalNetwork(flat, 0.3)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    total = torch.zeros(2, 3, dtype=torch.float64)
    for step in range(4000):
        network.zero_gradient()
        error = network(orthogonal).flatten() - targets
        (0.5 * error.square().mean()).backward()
        network.add_divergence(0.0, 1.0, 40)
        optimizer.step()
        if step == 2500:
            optimizer.param_groups[0]["lr"] = 0.002
        if step >= 3000:
            total += torch.stack(
                [network.mean.detach().double(), torch.from_numpy(network.posterior().precision)]
            )
    precision = 1 + orthogonal.square().sum(0)
    np.testing.assert_allclose(total[0] / 1000, (orthogonal.T @ targets) / precision, atol=0.02)
    np.testing.assert_allclose(total[1] / 1000, precision, rtol=0.1)


def test_the_module_is_left_without_hooks():
    flat = flat_of("lenet")
    network = VariationalNetwork(flat, 0.1)
    network(torch.randn(2, 1, 16, 16))
    with pytest.raises(RuntimeError):
        network(torch.randn(2, 3, 16, 16))
    inputs = torch.randn(2, 1, 16, 16)
    assert torch.equal(flat.module(inputs), flat.module(inputs))
