"""Mean-field Gaussians: closed forms of the divergence, gradients by draws, a known posterior."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call
from torch.nn.functional import cross_entropy, softplus

from fedivon_app.core.flat import Flat
from fedivon_app.core.meanfield import Gaussian, MeanField, divergence
from fedivon_app.core.models import build
from fedivon_app.core.posterior import Posterior

SIZE = 40


def random_gaussians(seed=0):
    """Means and deviations of two Gaussians."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(2, SIZE, generator=generator)
    return means, torch.rand(2, SIZE, generator=generator) * 2 + 0.01


@pytest.mark.parametrize("way", ["divergence", "fit"])
def test_the_divergence_and_its_gradients_are_those_of_autograd(way):
    """KL(self || other) as a prior, and KL(other || self) as something to fit."""
    (mean, other_mean), (sigma, other_sigma) = random_gaussians()
    own = Gaussian(mean, sigma)
    leaf_mean, leaf_rho = (
        parameter.detach().clone().requires_grad_() for parameter in own.parameters()
    )
    q = Normal(leaf_mean, softplus(leaf_rho))
    p = Normal(other_mean, other_sigma)
    expected = (kl_divergence(q, p) if way == "divergence" else kl_divergence(p, q)).sum()
    (3.0 * expected).backward()
    if way == "divergence":
        own.add_divergence(other_mean, other_sigma.pow(-2), 3.0)
        torch.testing.assert_close(
            divergence(mean, own.sigma, other_mean, other_sigma.pow(-2)), expected.detach()
        )
    else:
        own.add_fit(other_mean, other_sigma.square(), 3.0)
    torch.testing.assert_close(own.mean.grad, leaf_mean.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(own.rho.grad, leaf_rho.grad, rtol=1e-3, atol=1e-3)


def test_a_posterior_survives_the_way_there_and_back():
    rng = np.random.default_rng(0)
    posterior = Posterior(rng.standard_normal(SIZE), np.geomspace(1e-3, 1e8, SIZE))
    back = Gaussian.of(posterior).posterior()
    np.testing.assert_array_equal(back.mean, posterior.mean)
    np.testing.assert_allclose(back.precision, posterior.precision, rtol=1e-3)


def test_deviations_too_small_to_learn_are_raised():
    loaded = Gaussian.of(Posterior(np.zeros(2), np.array([1e20, 1.0])), smallest_sigma=0.01)
    np.testing.assert_allclose(loaded.posterior().precision, [1e4, 1.0], rtol=1e-3)


def network():
    torch.manual_seed(0)
    return Flat(build("mlp", (6,), 3, sizes=[5]))


def anywhere(flat):
    """Every third coordinate: a part that is not in one piece."""
    return np.arange(len(flat)) % 3 == 0


PARTS = {"all": lambda flat: slice(None), "head": lambda flat: flat.part("head"), "mask": anywhere}


@pytest.mark.parametrize("part", PARTS)
def test_a_draw_moves_its_part_alone_and_gives_the_gradients_of_autograd(part):
    flat = network()
    place = PARTS[part](flat)
    rng = np.random.default_rng(1)
    posterior = Posterior(rng.standard_normal(len(flat)), rng.uniform(1, 50, len(flat)))
    inputs = torch.randn(20, 6)
    labels = torch.randint(0, 3, (20,))
    before = flat.mean()
    field = MeanField(flat, posterior, place)
    expected = [torch.zeros(len(field)), torch.zeros(len(field))]
    for weight in (0.5, 2.0):  # two draws of one step
        field.draw()
        theta = flat.vector.clone()
        flat.zero_gradient()
        cross_entropy(flat.module(inputs), labels).backward()
        field.gather(weight)
        mean, rho = (
            parameter.detach().clone().requires_grad_() for parameter in field.parameters()
        )
        epsilon = (theta[place] - mean.detach()) / softplus(rho.detach())
        drawn = theta.clone()
        drawn[place] = mean + softplus(rho) * epsilon
        cross_entropy(
            functional_call(flat.module, flat.named_parameters(drawn), (inputs,)), labels
        ).backward()
        expected = [e + weight * leaf.grad for e, leaf in zip(expected, (mean, rho), strict=True)]
    for parameter, gradient in zip(field.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)
    outside = np.ones(len(flat), bool)
    outside[place] = False
    np.testing.assert_array_equal(theta.numpy()[outside], before[outside])
    assert (theta.numpy()[place] != before[place]).all()


def test_draws_have_the_mean_and_the_deviation_and_less_of_it_with_less_noise():
    flat = Flat(nn.Linear(2, 1))
    posterior = Posterior(np.array([1.0, -2.0, 0.5]), np.array([1.0, 4.0, 100.0]))
    for noise in (1.0, 0.1):
        field = MeanField(flat, posterior, noise=noise)
        draws = []
        for _ in range(4000):
            field.draw()
            draws.append(flat.mean())
        np.testing.assert_allclose(np.mean(draws, 0), posterior.mean, atol=0.06)
        np.testing.assert_allclose(np.std(draws, 0), noise * np.array([1.0, 0.5, 0.1]), rtol=0.06)


def test_a_part_is_put_back_into_the_whole():
    flat = network()
    whole = Posterior(np.zeros(len(flat)), np.ones(len(flat)))
    other = Posterior(np.full(len(flat), 5.0), np.full(len(flat), 16.0))
    for part in PARTS.values():
        place = part(flat)
        joined = MeanField(flat, other, place).within(whole)
        inside = np.zeros(len(flat), bool)
        inside[place] = True
        np.testing.assert_array_equal(joined.mean, np.where(inside, 5.0, 0.0))
        np.testing.assert_allclose(joined.precision, np.where(inside, 16.0, 1.0), rtol=1e-5)
        assert not whole.mean.any()


def test_on_squares_the_precision_is_the_curvatures_diagonal_and_the_priors():
    """The loss is the sum of (y - x w)^2 / 2 under the prior N(m_p, 1/s_p).

    The mean is (X'X + S)^-1 (X'y + s_p m_p), the precision diag(X'X) + s_p.
    """
    torch.manual_seed(0)
    flat = Flat(nn.Linear(3, 1, bias=False))
    x = torch.randn(12, 3) * torch.tensor([2.0, 1.0, 0.5])
    y = x @ torch.tensor([[1.0], [-1.0], [2.0]]) + 0.5 * torch.randn(12, 1)
    prior_mean = torch.tensor([0.5, 0.0, -1.0])
    prior_precision = torch.tensor([1.0, 3.0, 0.5])
    hessian = (x.T @ x + prior_precision.diag()).double()
    exact = torch.linalg.solve(
        hessian, ((x.T @ y).flatten() + prior_precision * prior_mean).double()
    )
    field = MeanField(flat, Posterior(np.zeros(3), np.ones(3)))
    optimizer = torch.optim.Adam(field.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.996)
    for _ in range(1500):
        field.zero_gradient()
        for _ in range(4):
            field.draw()
            flat.zero_gradient()
            (y - flat.module(x)).square().sum().div(2).backward()
            field.gather(1 / 4)
        field.add_divergence(prior_mean, prior_precision)
        optimizer.step()
        schedule.step()
    learned = field.posterior()
    np.testing.assert_allclose(learned.mean, exact, atol=0.03)
    np.testing.assert_allclose(learned.precision, hessian.diagonal(), rtol=0.1)
