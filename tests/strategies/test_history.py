"""A client against its own history, on losses whose every gradient is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.claims import Claim
from fedivon_app.strategies.history import History
from fedivon_app.strategies.sketch import Sketch, cosine
from fedivon_app.strategies.standing import Standing

CLIENTS = 12
LIARS = (2, 7, 9)
SIZE = 3000


def answers(lie, rounds=8, seed=0, liars=LIARS, claims=None):
    """The record of clients that each descend a quadratic loss of their own, and of liars."""
    rng = np.random.default_rng(seed)
    optima = rng.standard_normal((CLIENTS, SIZE))
    curvatures = rng.uniform(0.2, 1.8, (CLIENTS, SIZE))
    sketch = Sketch.of(SIZE, seed)
    server = 3 * rng.standard_normal(SIZE)
    history = History()
    for _ in range(rounds):
        changes = {k: curvatures[k] * (optima[k] - server) for k in range(CLIENTS)}
        honest = np.mean([changes[k] for k in changes if k not in liars], axis=0)
        for k in liars:
            changes[k] = lie(changes[k], honest)
        told = {k: sketch(change) for k, change in changes.items()}
        history = history.seen(told, sketch(server), claims)
        server = server + 0.1 * honest + 0.1 * rng.standard_normal(SIZE) * np.abs(honest)
    return history


@pytest.mark.parametrize(
    ("lie", "what"),
    [
        (lambda own, honest: -own, "opposition"),
        (lambda own, honest: -2 * honest, "opposition"),
    ],
)
def test_who_sends_changes_with_the_wrong_sign_is_in_doubt_and_nobody_else(lie, what):
    doubts = answers(lie).doubts()
    assert set(doubts) == set(LIARS)
    assert {doubt.what for doubt in doubts.values()} == {what}


def test_who_pushes_one_way_whatever_happens_is_in_doubt():
    rng = np.random.default_rng(1)
    target = rng.standard_normal(SIZE)
    sketch = Sketch.of(SIZE, 1)
    history = History()
    server = np.zeros(SIZE)
    optima = rng.standard_normal((CLIENTS, SIZE))
    for _ in range(8):
        changes = {k: sketch(optima[k] - server) for k in range(CLIENTS)}
        changes |= {k: sketch(optima[k] - server + 3 * target) for k in LIARS}
        history = history.seen(changes, sketch(server))
        server = server + 0.3 * (optima.mean(axis=0) - server) + 0.2 * target
    doubts = history.doubts()
    assert set(doubts) == set(LIARS)
    assert {doubt.what for doubt in doubts.values()} == {"insistence"}
    assert history.doubts(coupled=True) == {}  # a dual makes up for it in the end


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000))
def test_nobody_honest_is_in_doubt_however_different_the_data(seed):
    assert answers(None, liars=(), seed=seed).doubts() == {}


def test_a_claim_of_precision_far_from_all_others_is_doubted_at_once():
    claims = dict.fromkeys(range(CLIENTS), Claim(0.1))
    claims |= {4: Claim(7.0), 5: Claim(-4.0)}
    claims |= {6: Claim(4.0, allowance=3.0), 8: Claim(0.1, allowance=6.0)}  # these have more data
    doubts = answers(None, rounds=1, liars=(), claims=claims).doubts()
    assert {k: doubt.what for k, doubt in doubts.items()} == dict.fromkeys(
        (4, 5), "claim of precision"
    )
    assert "its claim of precision over the run is 6.90, and at most 2.30" in str(doubts[4])


def test_claims_are_held_against_what_clients_differ_by():
    spread = {k: Claim(1.5 * k) for k in range(CLIENTS)}
    assert answers(None, rounds=1, liars=(), claims=spread).doubts() == {}
    wide = dict.fromkeys(range(CLIENTS), Claim(0.1)) | {4: Claim(7.0), 5: Claim(4.0)}
    history = answers(None, rounds=1, liars=(), claims=wide)
    assert set(history.doubts()) == {4, 5}


def test_whose_steps_lead_uphill_is_in_doubt_and_a_checkpoint_knows():
    history = History()
    rng = np.random.default_rng(0)
    for _ in range(10):
        changes = {k: rng.standard_normal(SIZE) for k in range(CLIENTS)}
        slopes = {k: 0.02 if k == 3 else rng.choice([-0.02, 0.02]) for k in range(CLIENTS)}
        history = history.seen(changes, np.zeros(SIZE), slopes=slopes)
    found = {k: doubt for k, doubt in history.doubts(coupled=True).items() if "steps" in doubt.what}
    assert set(found) == {3}
    payload = Payload(Posterior(np.zeros(3)))
    kept = Standing(5, payload, history=history)
    again = Standing.of(5, payload, kept.arrays()).history
    assert again.doubts(coupled=True) == history.doubts(coupled=True)
    assert again.clients[3].way == history.clients[3].way


def test_who_is_in_doubt_too_often_is_left_out():
    history = answers(lambda own, honest: -own)
    for number in (1, 2):
        history = history.judged(frozenset({2}), server_round=number, after=3)
        assert not history.left_out
    history = history.judged(frozenset({2}), server_round=3, after=3)
    assert history.left_out == {2} and history.clients[2].left_out == 3
    assert 2 not in history.doubts()


def test_a_record_survives_a_checkpoint():
    history = answers(lambda own, honest: -own).judged(frozenset({7}), 4, after=1)
    payload = Payload(Posterior(np.zeros(3)))
    kept = Standing(5, payload, state={"sum_v": np.ones(2)}, history=history)
    found = Standing.of(5, payload, kept.arrays())
    assert list(found.state) == ["sum_v"] and found.history.left_out == {7}
    assert found.history.doubts() == history.doubts()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_a_sketch_keeps_cosines(seed):
    rng = np.random.default_rng(seed)
    one = rng.standard_normal(20_000)
    other = one * rng.uniform(-1, 1) + rng.standard_normal(20_000)
    sketch = Sketch.of(20_000, seed)
    assert cosine(sketch(one), sketch(other)) == pytest.approx(cosine(one, other), abs=0.1)
    assert cosine(np.zeros(3), np.ones(3)) == 0
