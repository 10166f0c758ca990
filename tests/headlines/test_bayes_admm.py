"""The headline of the ADMM family: with clients that differ much, BayesADMM learns in a few rounds
what FedAvg does not.

Bounds are such that the defects of the past break them: a guard that turned honest clients away,
duals of which server and clients kept different sums, and a first round whose loss ruined the rest.
Its convergence in one round has tests of its own, which belong to these:
tests/methods/test_convex.py (test_full_covariance_reaches_the_pooled_ridge_posterior_in_one_round)
and tests/figures/test_bayes_admm.py
(test_ridge_regression_takes_bayes_admm_one_round_and_the_others_many).
"""

import pytest

from tests.headlines.helpers import NO_FMNIST, records_of, score, turned_away
from tests.methods.test_coupled import Lossy

EXPERIMENT = "fmnist-heterogeneous-10"
DIGITS = [  # in place of Fashion-MNIST, with fewer labels a client and a smaller network
    "dataset=digits",
    "data.fraction=1",
    "data.concentration=0.05",
    "model.options.sizes=[64]",
    "client.epochs=20",
]
RATES = {  # FedAvg's is the best of 0.001, 0.003 and 0.01 for these data
    "fedavg": ["client.learning_rate=0.003"],
    "bayes-admm": ["client.learning_rate=0.0002", "merge.rho=0.1", "merge.dual_step=0.0001"],
}


def on_digits(strategy, place, *words, rounds=4, seed=2, grid=None):
    told = [*DIGITS, *RATES[strategy], *words]
    return records_of(EXPERIMENT, strategy, place, told, rounds=[rounds], seed=seed, grid=grid)


@pytest.mark.skipif(NO_FMNIST, reason="there is no fmnist.npz; the digits stand in for it below")
def test_bayes_admm_is_ahead_of_fedavg_on_fashion_mnist(tmp_path):
    """Measured under the seeds 0, 1 and 2: 70.4, 73.4 and 68.6 %, and FedAvg 66.1, 65.7 and 62.1.

    With the guard of old (server.precision_bound=10, server.change_bound=5) seed 1 has 35.9 %.
    """
    bayes = records_of(EXPERIMENT, "bayes-admm", tmp_path, [], rounds=[4], seed=1)
    fedavg = records_of(EXPERIMENT, "fedavg", tmp_path, [], rounds=[4], seed=1)
    assert turned_away(bayes) == []
    assert score(bayes) > 0.65
    assert score(bayes) > score(fedavg) + 0.02


def test_bayes_admm_is_ahead_of_fedavg_on_digits(tmp_path):
    """Measured under the seeds 0 to 3: 82.3, 84.8, 82.8 and 85.9 %, and FedAvg 58.0, 51.3, 47.6 and
    72.7; with the guard of old 64.8, 81.4, 36.1 and 74.4.
    """
    bayes = on_digits("bayes-admm", tmp_path)
    fedavg = on_digits("fedavg", tmp_path)
    assert turned_away(bayes) == []
    assert score(bayes) > 0.75
    assert score(bayes) > score(fedavg) + 0.08


def test_a_first_round_that_is_lost_costs_no_more_than_itself(tmp_path):
    """Measured under the seeds 0 to 3: 78.9, 74.9, 85.6 and 83.4 % after two merges.

    When the first round was told by its number, three of these runs diverged, and seed 2, which is
    the one here, had 10.1 %.
    """
    bayes = on_digits("bayes-admm", tmp_path, "data.clients=5", rounds=3, grid=Lossy(lost={1}))
    assert score(bayes) > 0.5
