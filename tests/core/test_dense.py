"""Full-covariance BayesADMM where everything has a closed form."""

import numpy as np
import pytest
import torch

from fedivon_app.core.dense import Dense, Diverged, dual_step, merge, no_dual, solve_client
from fedivon_app.core.regression import LogisticRegression, Ridge, SoftmaxRegression

RNG = np.random.default_rng(0)
K = 4
SIZE = 5
DELTA = 25.0
DATA = [
    (RNG.standard_normal((12, SIZE)) * RNG.uniform(0.3, 2, SIZE), RNG.standard_normal(12))
    for _ in range(K)
]
LOSSES = [Ridge(x, y) for x, y in DATA]


def pooled() -> Dense:
    precision = DELTA * np.eye(SIZE) + sum(x.T @ x for x, _ in DATA)
    return Dense(np.linalg.solve(precision, sum(x.T @ y for x, y in DATA)), precision)


def rounds(number, rho, step, alpha=None, space="natural", start=None):
    server = start or Dense.isotropic(SIZE, DELTA)
    duals = [no_dual(SIZE) for _ in range(K)]
    for _ in range(number):
        own = [
            solve_client(loss, server, dual, rho, step=1.0)
            for loss, dual in zip(LOSSES, duals, strict=True)
        ]
        steps = [dual_step(q, server, step, space) for q in own]
        duals = [(v + dv, m + dm) for (v, m), (dv, dm) in zip(duals, steps, strict=True)]
        total_v = sum(v for v, _ in duals)
        total_matrix = sum(matrix for _, matrix in duals)
        server, _ = merge(own, (total_v, total_matrix), DELTA, alpha or 1 / (1 + rho * K))
    return server


def gap(server: Dense) -> float:
    exact = pooled()
    return (
        np.abs(server.mean - exact.mean).max()
        + np.abs(server.precision - exact.precision).max() / DELTA
    )


def test_one_round_reaches_the_pooled_ridge_posterior():
    assert gap(rounds(1, rho=1 / K, step=1 / K)) < 1e-6


def test_other_starts_and_other_steps_take_longer():
    assert gap(rounds(1, rho=1 / K, step=1 / K, start=Dense.isotropic(SIZE, 1.0))) > 1e-2
    assert gap(rounds(1, rho=1.0, step=1.0)) > 1e-2
    assert gap(rounds(1, rho=1.0, step=0.2, space="expectation")) > 1e-2
    assert gap(rounds(120, rho=1.0, step=1.0)) < 1e-6


def test_a_client_solves_its_problem():
    """At the solution both equations of the problem hold, for a loss that is not quadratic too."""
    x = RNG.standard_normal((30, 3))
    labels = RNG.integers(0, 3, 30)
    loss = SoftmaxRegression(x, labels, 3)
    server = Dense.isotropic(9, 2.0)
    rho = 0.5
    v = RNG.standard_normal(9) * 0.1
    matrix = 0.1 * np.eye(9)
    own = solve_client(loss, server, (v, matrix), rho, tolerance=1e-11, most=500)
    _, gradient, hessian = loss.expected(own)
    np.testing.assert_allclose(
        rho * own.precision, hessian - matrix + rho * server.precision, atol=1e-6
    )
    slope = gradient + v - matrix @ own.mean + rho * server.precision @ (own.mean - server.mean)
    np.testing.assert_allclose(slope, 0, atol=1e-6)


def test_derivatives_are_those_of_autograd():
    x = RNG.standard_normal((7, 3))
    labels = RNG.integers(0, 4, 7)
    theta = RNG.standard_normal(12)
    value, gradient, hessian = SoftmaxRegression(x, labels, 4).at(theta)

    def loss(flat):
        logits = torch.from_numpy(x) @ flat.view(3, 4)
        return torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels), reduction="sum")

    point = torch.from_numpy(theta).requires_grad_()
    assert value == pytest.approx(loss(point).item())
    np.testing.assert_allclose(gradient, torch.autograd.grad(loss(point), point)[0], atol=1e-10)
    np.testing.assert_allclose(
        hessian, torch.autograd.functional.hessian(loss, point.detach()), atol=1e-10
    )


@pytest.mark.parametrize("kind", ["ridge", "softmax"])
def test_expectations_are_those_over_the_weights(kind):
    x = RNG.standard_normal((6, 2))
    y = RNG.standard_normal(6)
    loss = Ridge(x, y) if kind == "ridge" else SoftmaxRegression(x, np.arange(6) % 3, 3, draws=4000)
    size = 2 if kind == "ridge" else 6
    a = RNG.standard_normal((size, size))
    q = Dense(RNG.standard_normal(size), a @ a.T + np.eye(size))
    drawn = [loss.at(theta) for theta in q.samples(RNG.standard_normal((20_000, size)))]
    for found, values in zip(loss.expected(q), zip(*drawn, strict=True), strict=True):
        np.testing.assert_allclose(found, np.mean(values, 0), atol=0.05, rtol=0.03)


def test_divergence_and_samples():
    a = RNG.standard_normal((4, 4))
    one = Dense(np.ones(4), a @ a.T + np.eye(4))
    other = Dense(np.zeros(4), 2 * np.eye(4))

    def normal(q: Dense) -> torch.distributions.Distribution:
        return torch.distributions.MultivariateNormal(
            torch.from_numpy(q.mean), precision_matrix=torch.from_numpy(q.precision)
        )

    expected = torch.distributions.kl_divergence(normal(one), normal(other))
    assert one.kl(other) == pytest.approx(expected.item())
    drawn = one.samples(RNG.standard_normal((200_000, 4)))
    np.testing.assert_allclose(np.cov(drawn.T), one.covariance(), atol=0.02)


def test_a_precision_that_is_not_positive_is_raised():
    bad = np.diag([-5.0, 1.0])
    merged, raised = merge([Dense(np.zeros(2), np.eye(2))], (np.zeros(2), bad), 1.0, 0.9)
    assert raised == 1
    assert np.linalg.eigvalsh(merged.precision).min() > 0


def test_a_step_that_would_leave_the_cone_is_halved():
    """rho S = H - V + rho S_s = 1 - 2.9 + 2 = 0.1; one step from S_s = 2 leaves 0.5 at least."""
    loss = Ridge(np.eye(1), np.zeros(1))
    server = Dense(np.ones(1), 2 * np.eye(1))
    own = solve_client(loss, server, (np.zeros(1), np.array([[2.9]])), 1.0, step=1.0)
    assert own.precision[0, 0] == pytest.approx(0.1)
    assert own.mean[0] == pytest.approx(2.0 / 0.1)  # (H - V + S_s) m = S_s m_s


def test_a_problem_without_a_solution_is_told():
    """H - V + rho S_s = 1 - 4 + 2 is negative: the objective falls as the posterior widens."""
    loss = Ridge(np.eye(1), np.zeros(1))
    server = Dense(np.ones(1), 2 * np.eye(1))
    with pytest.raises(Diverged, match="has no solution nearby: take fewer VON steps"):
        solve_client(loss, server, (np.zeros(1), np.array([[4.0]])), 1.0, step=1.0, most=2000)


def test_the_dual_of_moments_is_an_ascent():
    """A client surer than the server, of the same mean, gains a positive V.

    It is what the client's curvature will be in the end.
    """
    server = Dense(np.ones(1), np.eye(1))
    own = Dense(np.ones(1), 4 * np.eye(1))
    v, matrix = dual_step(own, server, 0.5, "expectation")
    assert v[0] == 0 and matrix[0, 0] == pytest.approx(-2 * 0.5 * (1 / 4 - 1))


def test_logistic_regression_is_softmax_regression_with_one_logit_at_zero():
    x = RNG.standard_normal((9, 2))
    labels = np.arange(9) % 2
    one = LogisticRegression(x, labels)
    two = SoftmaxRegression(x, labels, 2)
    theta = RNG.standard_normal(2)
    pair = np.stack([np.zeros(2), theta], axis=1).reshape(-1)
    second = np.array([1, 3])
    mine = one.at(theta)
    other = two.at(pair)
    assert mine.value == pytest.approx(other.value, abs=1e-12)
    np.testing.assert_allclose(mine.gradient, other.gradient[second], atol=1e-12)
    np.testing.assert_allclose(mine.hessian, other.hessian[np.ix_(second, second)], atol=1e-12)
    q = Dense(theta, np.array([[2.0, 0.5], [0.5, 1.0]]))
    drawn = [one.at(draw) for draw in q.samples(RNG.standard_normal((40_000, 2)))]
    for found, values in zip(one.expected(q), zip(*drawn, strict=True), strict=True):
        np.testing.assert_allclose(found, np.mean(values, 0), atol=0.03, rtol=0.02)
