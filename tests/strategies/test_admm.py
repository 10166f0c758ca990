"""The ADMM family on quadratic losses, where every step has a closed form and the optimum is known.

Client k has the loss theta^T A_k theta / 2 - b_k^T theta, A_k diagonal: the pooled posterior under the prior
N(0, 1/delta) has the precision delta + sum A_k and the mean sum b_k over that.
"""

import numpy as np
import pytest

from fedivon_app.core.codec import Payload
from fedivon_app.core.duality import dual_step
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.replies import Reply

K = 5
SIZE = 6
RNG = np.random.default_rng(0)
A = RNG.uniform(0.2, 3.0, (K, SIZE))
B = RNG.standard_normal((K, SIZE))


def strategy(name, **merge):
    values = {"experiment": "test", "strategy": name, "merge": merge, "data": {"clients": K}}
    return method(name).strategy(settings_of(name).model_validate(values))


def reply(partition, posterior):
    return Reply(partition, 10, 0, Payload(posterior), {})


class Exact:
    """Clients of BayesADMM with exact solutions: s_k = s + (A_k - u_k)/rho, s_k m_k = s m + (b_k - v_k)/rho."""

    def __init__(self, merge):
        self.merge = merge
        self.v = np.zeros((K, SIZE))
        self.u = np.zeros((K, SIZE))

    def answer(self, k, server):
        rho = self.merge.rho
        precision = server.precision + (A[k] - self.u[k]) / rho
        own = Posterior(
            (server.precision * server.mean + (B[k] - self.v[k]) / rho) / precision, precision
        )
        more_v, more_u = dual_step(own, server, self.merge.dual_step, self.merge.dual_space)
        self.v[k] += more_v
        self.u[k] += more_u
        return reply(k, own)


def federate(server, clients, rounds, present=range(K), start=None):
    """The server's posterior after each round, from the prior; round 2 on, in which the server is what clients see."""
    delta = server.settings.merge.prior_precision
    posterior = start or Posterior(np.zeros(SIZE), np.full(SIZE, delta))
    history = []
    for number in range(2, rounds + 2):
        server.record = {"round": number}
        chosen = present(number) if callable(present) else present
        posterior = server.merge([clients.answer(k, posterior) for k in chosen], None, posterior)
        history.append(posterior)
    return history


def pooled(delta):
    precision = delta + A.sum(0)
    return Posterior(B.sum(0) / precision, precision)


def test_bayes_admm_reaches_the_pooled_posterior_in_one_round():
    server = strategy("bayes-admm", rho=1 / K, dual_step=1 / K, prior_precision=2.0)
    (after,) = federate(server, Exact(server.settings.merge), 1)
    np.testing.assert_allclose(after.precision, pooled(2.0).precision, rtol=1e-6)
    np.testing.assert_allclose(after.mean, pooled(2.0).mean, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "merge"),
    [
        ("bayes-admm", {"rho": 1.0, "dual_step": 0.5}),
        ("pvi", {"rho": 1.0, "alpha": 1.0, "dual_step": 0.2}),
        ("bregman-admm", {"rho": 1.0, "dual_step": 0.3, "dual_space": "expectation"}),
    ],
)
def test_the_family_ends_at_the_pooled_posterior_and_takes_its_time(name, merge):
    server = strategy(name, prior_precision=2.0, **merge)
    history = federate(server, Exact(server.settings.merge), 1200)
    gaps = [
        np.abs(q.mean - pooled(2.0).mean).max()
        + np.abs(q.precision / pooled(2.0).precision - 1).max()
        for q in history
    ]
    assert gaps[0] > 1e-2 and gaps[-1] < 1e-4


def test_the_server_follows_the_sums_of_duals_by_itself():
    server = strategy("bayes-admm", rho=1.0, dual_step=0.5, prior_precision=2.0)
    clients = Exact(server.settings.merge)
    federate(
        server, clients, 7, present=lambda number: [number % K, (number + 2) % K]
    )  # two of them a round
    np.testing.assert_allclose(server.sums["v"], clients.v.sum(0), atol=1e-9)
    np.testing.assert_allclose(server.sums["u"], clients.u.sum(0), atol=1e-9)
    other = strategy("bayes-admm", rho=1.0, dual_step=0.5, prior_precision=2.0)
    other.load_state(server.state())
    np.testing.assert_array_equal(other.sums["u"], server.sums["u"])


def test_a_merged_precision_below_the_floor_is_raised_and_counted():
    server = strategy(
        "bayes-admm", rho=1.0, dual_step=1.0, prior_precision=0.01, smallest_precision=0.5
    )
    server.record = {"round": 2}
    previous = Posterior(np.zeros(2), np.array([1.0, 1.0]))
    merged = server.merge([reply(0, Posterior(np.ones(2), np.array([0.1, 3.0])))], None, previous)
    assert server.record["floored_precisions"] == 1
    assert merged.precision[0] == 0.5 and merged.precision[1] > 0.5


class ExactPoints:
    """Clients of federated ADMM: argmin of the loss + <v, theta> + rho/2 |theta - m|^2."""

    def __init__(self, merge):
        self.merge = merge
        self.v = np.zeros((K, SIZE))

    def answer(self, k, server):
        own = (B[k] - self.v[k] + self.merge.rho * server.mean) / (A[k] + self.merge.rho)
        self.v[k] += self.merge.dual_step * (
            own.astype(np.float32).astype(np.float64) - server.mean
        )
        return reply(k, Posterior(own))


@pytest.mark.parametrize(("name", "delta"), [("fed-admm", 2.0), ("feddyn", 0.0)])
def test_points_with_duals_reach_the_pooled_optimum_and_an_average_does_not(name, delta):
    server = strategy(name, rho=1.0, dual_step=1.0, prior_precision=delta)
    start = Posterior(np.zeros(SIZE))
    reached = federate(server, ExactPoints(server.settings.merge), 150, start=start)
    np.testing.assert_allclose(reached[-1].mean, B.sum(0) / (delta + A.sum(0)), atol=1e-4)
    assert np.abs(reached[0].mean - reached[-1].mean).max() > 1e-2  # not in one round
    average = (B / A).mean(0)
    assert np.abs(average - B.sum(0) / A.sum(0)).max() > 0.1


def test_absent_clients_keep_their_say():
    server = strategy("fed-admm", rho=1.0, dual_step=1.0, prior_precision=2.0)
    clients = ExactPoints(server.settings.merge)
    chosen = lambda number: RNG.choice(K, 3, replace=False)  # noqa: E731
    reached = federate(server, clients, 1500, present=chosen, start=Posterior(np.zeros(SIZE)))
    np.testing.assert_allclose(server.sums["v"], clients.v.sum(0), atol=1e-6)
    np.testing.assert_allclose(reached[-1].mean, B.sum(0) / (2.0 + A.sum(0)), atol=0.05)
