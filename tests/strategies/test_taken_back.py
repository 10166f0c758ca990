"""A client that is left out leaves nothing behind in the sums of a method with duals."""

import numpy as np
import pytest

from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import method, settings_of
from fedivon_app.server.setup import prepare
from fedivon_app.strategies import taken_back
from fedivon_app.strategies.base import Reply, Round
from fedivon_app.strategies.taken_back import additions, has_room, settled

DUALS = ["bayes-admm", "bregman-admm", "pvi", "fedlap-cov", "fed-admm", "feddyn", "fedlap"]
ROUNDS = 3


def federate(strategy, first, partitions, gone=()):
    """The state after a few rounds in which each of these clients sent something."""
    rng = np.random.default_rng(0)
    size = len(first.posterior)
    sent, state = first, {}
    for number in range(1, ROUNDS + 1):
        replies = []
        for partition in range(5):  # all draw, so that nobody's draws depend on who is there
            mean = sent.posterior.mean + 0.1 * rng.standard_normal(size).astype(np.float32)
            precision = np.exp(0.1 * rng.standard_normal(size)) * 2
            own = Posterior(mean, None if sent.posterior.precision is None else precision)
            if partition in partitions:
                replies.append(Reply(partition, 10, 0, Payload(own), {}))

        def merge(some, number=number, state=state):
            weights = np.full(len(some), 1 / len(some))
            first_round = number == 1
            return strategy.merge(Round(number, some, weights, sent, 5, first_round, state))

        merged = merge(replies)
        added = additions(replies, state, lambda reply, merge=merge: merge([reply]))
        state = settled(state, merged.state, added, gone if number == ROUNDS else ())
    return state


@pytest.mark.parametrize("name", DUALS)
def test_the_sums_are_as_if_it_had_never_taken_part(name):
    """The server's posterior is held still, for what it sends depends on who took part."""
    settings = compose(settings_of, "demo", name, ["data.clients=5", "clients_per_round=5"])
    prepared = prepare(settings)
    strategy = method(name).strategy(settings, prepared.architecture)
    first = strategy.begin(prepared.flat.mean())
    without = federate(strategy, first, (0, 1, 2, 4))
    taken = federate(strategy, first, range(5), gone=(3,))
    assert taken.keys() == without.keys()
    assert any(key.startswith("sum_") for key in taken)
    for key, array in without.items():
        np.testing.assert_allclose(taken[key], array, rtol=1e-4, atol=1e-4 * np.abs(array).max())


def test_it_is_taken_back_once():
    state = {"sum_v": np.full(2, 5.0), "added_3_sum_v": np.full(2, 4.0)}
    once = settled(state, {"sum_v": np.full(2, 6.0)}, {}, (3,))
    assert once.keys() == {"sum_v"} and once["sum_v"].tolist() == [2.0, 2.0]
    again = settled(once, {"sum_v": np.full(2, 2.5)}, {1: {"sum_v": np.full(2, 0.5)}}, (3,))
    assert again["sum_v"].tolist() == [2.5, 2.5] and again["added_1_sum_v"].tolist() == [0.5, 0.5]


def test_what_is_kept_has_its_bounds(monkeypatch):
    monkeypatch.setattr(taken_back, "ROOM", 5 * 16)
    state = {"sum_v": np.zeros(2), "other": np.zeros(1000)}
    assert has_room(state, clients=5) and not has_room(state, clients=6)
