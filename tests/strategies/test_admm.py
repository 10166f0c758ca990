"""The ADMM family on quadratic losses, where every step has a closed form and the optimum is known.

Client k has the loss theta^T A_k theta / 2 - b_k^T theta, A_k diagonal: the pooled posterior under
the prior N(0, 1/delta) has the precision delta + sum A_k and the mean sum b_k over that.
"""

import numpy as np
import pytest

from fedivon_app.core.codec import Payload
from fedivon_app.core.duality import dual_step
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.base import Reply, Round

K = 5
SIZE = 6
RNG = np.random.default_rng(0)
A = RNG.uniform(0.2, 3.0, (K, SIZE))
B = RNG.standard_normal((K, SIZE))


def strategy(name, **merge):
    values = {"experiment": "test", "strategy": name, "merge": merge, "data": {"clients": K}}
    return method(name).strategy(settings_of(name).model_validate(values), Architecture())


def reply(partition, posterior):
    return Reply(partition, 10, 0, Payload(posterior), {})


class Exact:
    """Clients of BayesADMM with exact solutions.

    S_k = s + (A_k - u_k)/rho, s_k m_k = s m + (b_k - v_k)/rho.
    """

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


def merge(server, number, replies, previous, state=None):
    """What the server makes of the replies of a round."""
    weights = np.full(len(replies), 1 / len(replies))
    return server.merge(Round(number, replies, weights, Payload(previous), K, state=state or {}))


def federate(server, clients, rounds, present=range(K), start=None):
    """What the server has after each round, from the prior.

    It begins with round 2, from which on the server is what clients see.
    """
    delta = server.settings.merge.prior_precision
    posterior = start or Posterior(np.zeros(SIZE), np.full(SIZE, delta))
    state = {}
    history = []
    for number in range(2, rounds + 2):
        chosen = present(number) if callable(present) else present
        replies = [clients.answer(k, posterior) for k in chosen]
        merged = merge(server, number, replies, posterior, state)
        posterior = merged.posterior
        state = merged.state
        history.append(merged)
    return history


def pooled(delta):
    precision = delta + A.sum(0)
    return Posterior(B.sum(0) / precision, precision)


def test_bayes_admm_reaches_the_pooled_posterior_in_one_round():
    server = strategy("bayes-admm", rho=1 / K, dual_step=1 / K, prior_precision=2.0)
    (merged,) = federate(server, Exact(server.settings.merge), 1)
    after = merged.posterior
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
        for q in (merged.posterior for merged in history)
    ]
    assert gaps[0] > 1e-2 and gaps[-1] < 1e-4


def test_the_server_follows_the_sums_of_duals_by_itself():
    server = strategy("bayes-admm", rho=1.0, dual_step=0.5, prior_precision=2.0)
    clients = Exact(server.settings.merge)
    two_a_round = lambda number: [number % K, (number + 2) % K]  # noqa: E731
    state = federate(server, clients, 7, present=two_a_round)[-1].state
    np.testing.assert_allclose(state["sum_v"], clients.v.sum(0), atol=1e-9)
    np.testing.assert_allclose(state["sum_u"], clients.u.sum(0), atol=1e-9)


def test_a_merged_precision_below_the_floor_is_raised_and_counted():
    server = strategy(
        "bayes-admm", rho=1.0, dual_step=1.0, prior_precision=0.01, smallest_precision=0.5
    )
    previous = Posterior(np.zeros(2), np.array([1.0, 1.0]))
    own = Posterior(np.ones(2), np.array([0.1, 3.0]))
    merged = merge(server, 2, [reply(0, own)], previous)
    assert merged.notes == {"floored_precisions": 1}
    precision = merged.posterior.precision
    assert precision[0] == 0.5 and precision[1] > 0.5


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
    np.testing.assert_allclose(reached[-1].posterior.mean, B.sum(0) / (delta + A.sum(0)), atol=1e-4)
    assert (
        np.abs(reached[0].posterior.mean - reached[-1].posterior.mean).max() > 1e-2
    )  # not in one round
    average = (B / A).mean(0)
    assert np.abs(average - B.sum(0) / A.sum(0)).max() > 0.1


def test_a_server_of_duals_alone_begins_at_the_clients_average_and_not_at_their_changes():
    """Its duals count from the prior's mean, and not from where the network's weights begin."""
    server = strategy("fedlap", rho=2.0, alpha=1.0, dual_step=2.0 / K, prior_precision=2.0)
    means = RNG.standard_normal((K, SIZE))
    replies = [reply(k, Posterior(mean)) for k, mean in enumerate(means)]
    start = Payload(Posterior(RNG.standard_normal(SIZE)))
    weights = np.full(K, 1 / K)
    merged = server.merge(Round(1, replies, weights, start, K, first=True, state={}))
    np.testing.assert_allclose(merged.posterior.mean, means.mean(0), rtol=1e-6)
    again = server.merge(
        Round(2, replies, weights, Payload(merged.posterior), K, state=merged.state)
    )
    np.testing.assert_allclose(again.posterior.mean, means.mean(0), rtol=1e-6)


def test_absent_clients_keep_their_say():
    server = strategy("fed-admm", rho=1.0, dual_step=1.0, prior_precision=2.0)
    clients = ExactPoints(server.settings.merge)
    chosen = lambda number: RNG.choice(K, 3, replace=False)  # noqa: E731
    reached = federate(server, clients, 1500, present=chosen, start=Posterior(np.zeros(SIZE)))
    np.testing.assert_allclose(reached[-1].state["sum_v"], clients.v.sum(0), atol=1e-6)
    np.testing.assert_allclose(reached[-1].posterior.mean, B.sum(0) / (2.0 + A.sum(0)), atol=0.05)
