"""IVON: agreement with the reference package, closed forms, and what must never break."""

import ivon as reference
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedivon_app.core.ivon import IVON
from fedivon_app.core.posterior import Posterior
from tests.core.ivon_problem import train


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mc_samples": 3},
        {"clip_radius": 0.01},
        {"rescale_lr": False, "debias": False, "hess_init": 0.5},
        {"split_groups": True},
    ],
    ids=["default", "three samples", "clipped", "no rescaling, no debias", "parameter groups"],
)
def test_equals_the_reference_package_over_200_steps(options):
    ours, our_optimizer = train(IVON, 200, **options)
    theirs, their_optimizer = train(reference.IVON, 200, **options)
    vector = nn.utils.parameters_to_vector
    torch.testing.assert_close(
        vector(ours.parameters()), vector(theirs.parameters()), rtol=1e-4, atol=2e-6
    )
    their_hess = torch.cat([group["hess"] for group in their_optimizer.param_groups])
    torch.testing.assert_close(our_optimizer.hess, their_hess, rtol=1e-4, atol=1e-6)


# Independent copies of the problem, side by side in the vector; their average has little noise.
REPLICAS = 200


def fit(theta: nn.Parameter, loss, steps=5000, **options) -> Posterior:
    """The average posterior over the replicas, of a (REPLICAS, D) parameter, with falling rates."""
    optimizer = IVON([theta], lr=0.05, **options)
    torch.manual_seed(3)
    for step in range(steps):
        left = 1 - step / steps
        optimizer.param_groups[0] |= {"lr": 0.05 * left, "beta2": 1 - 0.003 * left}
        with optimizer.sampled_params(train=True):
            loss().backward()
        optimizer.step()
    found = optimizer.posterior()
    return Posterior(
        found.mean.reshape(REPLICAS, -1).mean(0), found.precision.reshape(REPLICAS, -1).mean(0)
    )


def fit_quadratic(**options) -> Posterior:
    """The loss 0.5 a (theta - c)^2, from near its minimum."""
    theta = nn.Parameter((CENTRE + 0.1).repeat(REPLICAS, 1))
    return fit(theta, lambda: (0.5 * CURVATURE * (theta - CENTRE) ** 2).sum(), **options)


CURVATURE = torch.tensor([0.5, 1.0, 2.0, 4.0])
CENTRE = torch.tensor([1.0, -2.0, 0.5, 3.0])


SAMPLING = pytest.mark.parametrize("antithetic", [False, True], ids=["independent", "antithetic"])


@SAMPLING
def test_posterior_of_bayesian_linear_regression(antithetic):
    """y = X w + noise of variance 1 under the prior N(0, 1/delta).

    The posterior has the precision X'X + delta and the mean (X'X + delta)^-1 X'y.
    """
    rng = np.random.default_rng(0)
    orthogonal = np.linalg.qr(rng.standard_normal((200, 4)))[0] * np.sqrt([60, 100, 150, 200])
    response = orthogonal @ [1.0, -2.0, 0.5, 3.0] + rng.standard_normal(200)
    delta = 10.0
    exact_precision = np.diag(orthogonal.T @ orthogonal) + delta
    exact_mean = (orthogonal.T @ response) / exact_precision
    design = torch.tensor(orthogonal, dtype=torch.float32)
    target = torch.tensor(response, dtype=torch.float32)
    weights = nn.Parameter(torch.zeros(REPLICAS, 4))
    options = {"ess": 200, "weight_decay": delta / 200, "antithetic": antithetic}
    found = fit(
        weights, lambda: 0.5 * (weights @ design.T - target).square().mean(1).sum(), **options
    )
    np.testing.assert_allclose(found.mean, exact_mean, atol=0.005)
    np.testing.assert_allclose(found.precision, exact_precision, rtol=0.03)


@SAMPLING
def test_a_gaussian_prior_gives_the_closed_form(antithetic):
    """s = ess a + s_p, m = (ess a c + s_p m_p) / s."""
    prior = Posterior(
        np.tile([0.0, 1.0, -1.0, 2.0], REPLICAS), np.tile([5.0, 10.0, 40.0, 10.0], REPLICAS)
    )
    prior_mean = prior.mean[:4]
    prior_precision = prior.precision[:4]
    found = fit_quadratic(ess=10, prior=prior, antithetic=antithetic)
    precision = 10 * CURVATURE.numpy() + prior_precision
    mean = (10 * CURVATURE.numpy() * CENTRE.numpy() + prior_precision * prior_mean) / precision
    np.testing.assert_allclose(found.mean, mean, atol=0.01)
    np.testing.assert_allclose(found.precision, precision, rtol=0.03)


def test_duals_give_the_closed_form():
    """s = ess (a - u) + s_p, m = (ess (a c - v) + s_p m_p) / s.

    The hessian may be negative, the precision not.
    """
    prior = Posterior(
        np.tile([0.0, 1.0, -1.0, 2.0], REPLICAS), np.tile([5.0, 10.0, 40.0, 10.0], REPLICAS)
    )
    prior_mean = prior.mean[:4]
    prior_precision = prior.precision[:4]
    v = np.array([0.3, -0.2, 0.5, 0.0], np.float32)
    u = np.array([0.7, 0.4, 0.5, -1.0], np.float32)
    found = fit_quadratic(ess=10, prior=prior, dual=(np.tile(v, REPLICAS), np.tile(u, REPLICAS)))
    precision = 10 * (CURVATURE.numpy() - u) + prior_precision
    pull = 10 * (CURVATURE.numpy() * CENTRE.numpy() - v) + prior_precision * prior_mean
    mean = pull / precision
    np.testing.assert_allclose(found.mean, mean, atol=0.01)
    np.testing.assert_allclose(found.precision, precision, rtol=0.03)


def one_step(gradient: float, steps: int = 1, **options) -> tuple[np.ndarray, np.ndarray]:
    """How far steps on a loss with this slope move four weights, and their sigmas before it."""
    theta = nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 0.0]))
    optimizer = IVON([theta], ess=100, weight_decay=1e-4, **options)
    optimizer.precision = np.array([1.0, 4.0, 100.0, 2500.0])
    before = optimizer.posterior()
    torch.manual_seed(0)
    for _ in range(steps):
        with optimizer.sampled_params(train=True):
            (gradient * theta).sum().backward()
        optimizer.step()
    return optimizer.posterior().mean - before.mean, before.precision**-0.5


PRIOR = Posterior(np.zeros(4), np.full(4, 0.5))


@pytest.mark.parametrize("options", [{}, {"prior": PRIOR}], ids=["weight decay", "prior"])
def test_no_step_is_longer_than_its_bound_in_sigmas(options):
    """However steep the loss, a weight moves by step_bound of its own sigmas, downhill."""
    for slope in (1e4, -1e12):
        moved, sigma = one_step(slope, lr=1.0, step_bound=0.5, beta2=1.0, **options)
        np.testing.assert_allclose(moved, -np.sign(slope) * 0.5 * sigma, rtol=1e-5)


def test_a_bound_that_no_step_reaches_changes_nothing():
    free = one_step(0.01, steps=5, lr=0.01)
    bounded = one_step(0.01, steps=5, lr=0.01, step_bound=3.0)
    np.testing.assert_allclose(free[0], bounded[0], rtol=1e-5)
    assert (np.abs(free[0]) > 0).all()


def test_antithetic_samples_come_in_mirrored_pairs():
    theta = nn.Parameter(torch.zeros(50))
    optimizer = IVON([theta], lr=0.1, ess=100, beta2=0.9, antithetic=True)
    epsilons = []
    for _ in range(4):  # the mean and the precision move between the two of a pair
        mean = theta.detach().clone()
        deviation = optimizer.precision.rsqrt()
        with optimizer.sampled_params(train=True):
            epsilons.append((theta.detach() - mean) / deviation)
            (3 * theta).sum().backward()
        optimizer.step()
        with optimizer.sampled_params():  # a look at another sample does not part the pair
            pass
    torch.testing.assert_close(epsilons[1], -epsilons[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(epsilons[3], -epsilons[2], rtol=1e-4, atol=1e-5)
    assert float((epsilons[2] - epsilons[0]).abs().min()) > 0
    assert abs(float(torch.stack(epsilons[::2]).std()) - 1) < 0.25


def test_a_restored_optimizer_begins_a_new_pair():
    def step(optimizer, theta) -> torch.Tensor:
        with optimizer.sampled_params(train=True):
            drawn = theta.detach().clone()
            (3 * theta).sum().backward()
        optimizer.step()
        return drawn

    def optimizer_of(theta) -> IVON:
        return IVON([theta], lr=0.1, ess=100, antithetic=True)

    first = nn.Parameter(torch.zeros(50))
    other = nn.Parameter(torch.zeros(50))
    used = optimizer_of(first)
    fresh = optimizer_of(other)
    step(used, first)
    state = used.state_dict()
    for optimizer in (used, fresh):
        optimizer.load_state_dict(state)
    found = []
    for optimizer, theta in ((used, first), (fresh, other)):
        torch.manual_seed(2)
        found.append(step(optimizer, theta))
    torch.testing.assert_close(found[0], found[1])


def test_the_hessian_of_an_antithetic_pair_does_not_see_the_slope():
    """On 0.5 a (theta - c)^2 the two h_hat of a pair average to a epsilon^2, however far c is."""

    def after_one_step(centre: float, antithetic: bool):
        theta = nn.Parameter(torch.zeros(50))
        optimizer = IVON(
            [theta], lr=0.0, ess=100, beta2=0.9, weight_decay=0, mc_samples=2, antithetic=antithetic
        )
        torch.manual_seed(5)
        for _ in range(2):
            with optimizer.sampled_params(train=True):
                (0.5 * 2.0 * (theta - centre) ** 2).sum().backward()
        optimizer.step()
        torch.manual_seed(5)
        return optimizer.hess, torch.randn(50)

    near, epsilon = after_one_step(0.0, True)
    found = 2.0 * epsilon**2
    torch.testing.assert_close(
        near, 0.9 + 0.1 * found + 0.5 * 0.01 * (1 - found) ** 2, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(after_one_step(30.0, True)[0], near, rtol=1e-3, atol=1e-3)
    assert float((after_one_step(30.0, False)[0] - after_one_step(0.0, False)[0]).abs().mean()) > 1


def step_with(optimizer, parameter, gradient):
    with optimizer.sampled_params(train=True):
        parameter.grad.copy_(gradient(optimizer) if callable(gradient) else gradient)
    optimizer.step()


@settings(max_examples=60, deadline=None)
@given(
    gradients=st.lists(
        st.lists(st.floats(-(2.0**50), 2.0**50, width=32), min_size=3, max_size=3),
        min_size=1,
        max_size=40,
    ),
    beta2=st.sampled_from([0.0, 0.5, 0.9, 0.999, 0.99999]),
    weight_decay=st.sampled_from([1e-8, 1e-4, 1.0]),
)
def test_precision_stays_positive_under_hostile_gradients(gradients, beta2, weight_decay):
    theta = nn.Parameter(torch.zeros(3))
    optimizer = IVON(
        [theta], lr=0.1, ess=100, hess_init=1e-3, beta2=beta2, weight_decay=weight_decay
    )
    for gradient in gradients:
        step_with(optimizer, theta, torch.tensor(gradient))
        precision = optimizer.precision
        assert bool((precision > 0).all()) and bool(torch.isfinite(precision).all())


def test_precision_stays_positive_when_every_gradient_is_the_worst_one():
    """The gradient for which d halves, step after step, for longer than float32 has halves."""
    theta = nn.Parameter(torch.zeros(2))
    optimizer = IVON([theta], lr=0.0, ess=1.0, beta2=0.5, weight_decay=1e-6)

    def worst(optimizer):  # h_hat = h - d/(1 - beta2), so that y = 0
        noise = theta.detach()  # the mean stays 0
        scaled = optimizer.precision
        return (optimizer.hess - scaled / 0.5) / (noise * scaled)

    for _ in range(300):
        step_with(optimizer, theta, worst)
    assert bool((optimizer.precision > 0).all())


@pytest.mark.parametrize("known", [False, True])
def test_known_noise_in_the_gradients_does_not_widen_the_hessian(known):
    """A flat loss has no curvature; noise alone would make half (1 - b2) ess sigma^2 of it."""
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.zeros(20_000))
    ess, beta2, sigma = 100.0, 0.9, 0.1
    optimizer = IVON(
        [weights],
        lr=0.0,
        ess=ess,
        hess_init=0.0,
        weight_decay=1.0,
        beta2=beta2,
        gradient_noise=sigma if known else 0.0,
    )
    for _ in range(150):
        with optimizer.sampled_params(train=True):
            weights.grad.normal_(std=sigma)
        optimizer.step()
    widening = 0.5 * (1 - beta2) * ess * sigma**2
    expected = 0.0 if known else widening
    assert optimizer.hess.mean().item() == pytest.approx(expected, abs=0.1 * widening)


def test_known_noise_is_subtracted_with_priors_and_duals_too():
    torch.manual_seed(0)
    size = 20_000
    found = []
    for noise in (0.0, 0.1):
        weights = torch.nn.Parameter(torch.zeros(size))
        prior = Posterior(np.zeros(size), np.full(size, 100.0))
        dual = (np.zeros(size), np.full(size, 0.2))
        options = {"ess": 100.0, "beta2": 0.9, "prior": prior, "dual": dual}
        optimizer = IVON([weights], lr=0.0, hess_init=0.5, gradient_noise=noise, **options)
        torch.manual_seed(1)
        for _ in range(100):
            with optimizer.sampled_params(train=True):
                weights.grad.normal_(std=0.1)
            optimizer.step()
        found.append(optimizer.hess.mean().item())
    assert found[0] - found[1] == pytest.approx(0.05, rel=0.15)
