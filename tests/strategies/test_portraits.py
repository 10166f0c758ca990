"""Clients among those of their rounds: closed forms, and who is told apart from whom."""

from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.strategies import portraits
from fedivon_app.strategies.portraits import FADING, PACE, Look, Portrait, looks, seen_again

CLIENTS = 12
LIARS = (2, 7, 9)
SIZE = 400


def run(lie=None, rounds=10, seed=0, data=1.0, lengths=None):
    """The portraits of clients with a face of their own, `data` times as large as chance."""
    rng = np.random.default_rng(seed)
    faces = data * rng.standard_normal((CLIENTS, SIZE))
    known = {}
    for number in range(rounds):
        common = rng.standard_normal(SIZE)
        noise = rng.standard_normal((CLIENTS, SIZE))
        changes = {k: common + faces[k] + noise[k] for k in range(CLIENTS)}
        honest = np.array([changes[k] for k in changes if k not in LIARS])
        for k in LIARS if lie else ():
            changes[k] = lie(honest, rng)
        if lengths:
            changes |= {k: changes[k] * length(number) for k, length in lengths.items()}
        known |= seen_again(known, changes)
    return known


def test_looks_in_closed_form():
    ways = np.eye(5)
    found = looks({k: (k + 1) * ways[k] for k in range(5)})
    for k, look in found.items():
        np.testing.assert_allclose(look.apart, ways[k] - 0.2)
        assert look.length == pytest.approx(log((k + 1) / 3)) and not look.same
    twins = looks({k: ways[max(k, 1)] for k in range(5)})
    assert twins[0].same == {1} and twins[1].same == {0} and not twins[2].same
    assert looks({k: ways[k] for k in range(4)}) == {}  # too few to judge by
    assert 4 not in looks({k: ways[k] * (k != 4) for k in range(5)} | {5: ways[4]})  # it stays


def test_a_portrait_in_closed_form():
    one = np.array([1.0, 0.0])
    other = np.array([0.0, 1.0])
    portrait = Portrait(np.zeros(2))
    for apart, length in ((one, 0.3), (one, 0.0), (other, -0.6), (other, 0.9)):
        portrait = portrait.seen(Look(apart, length))
    before = FADING * FADING + FADING
    np.testing.assert_allclose(portrait.face, [FADING * before, FADING + 1], rtol=1e-6)
    assert portrait.likeness == pytest.approx(1 + 0 + 1 / np.hypot(before, 1), rel=1e-6)
    assert portrait.first == pytest.approx(-0.1)
    assert portrait.discontent == pytest.approx(PACE * (0.9 + 0.1))


@pytest.mark.parametrize(
    ("lie", "what"),
    [
        (lambda honest, rng: 10 * rng.standard_normal(SIZE), "unlikeness to itself"),
        (lambda honest, rng: honest[rng.integers(len(honest))], "unlikeness to itself"),
        (lambda honest, rng: honest.mean(axis=0) - 1.5 * honest.std(axis=0), "share of echoes"),
    ],
    ids=["noise", "copies of others", "one lie of all"],
)
def test_who_is_nobody_is_in_doubt_and_nobody_else(lie, what):
    doubts = portraits.doubts(run(lie))
    assert {k: doubt.what for k, doubt in doubts.items()} == dict.fromkeys(LIARS, what)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 1000), data=st.sampled_from([0.0, 0.3, 1.0, 3.0]))
def test_nobody_honest_is_in_doubt_or_discontent_whether_data_are_alike_or_not(seed, data):
    known = run(seed=seed, data=data)
    assert portraits.doubts(known) == {} and not portraits.discontented(known)


def test_those_whom_liars_copy_in_turn_are_no_echoes():
    known = run(lambda honest, rng: honest[rng.integers(2)], rounds=20)
    assert portraits.doubts(known).keys() == {*LIARS}
    assert known[0].echoes < known[2].echoes


def test_whose_change_grows_against_all_others_is_discontent_and_not_who_was_long_always():
    lengths = {3: lambda number: 1.25, 5: lambda number: 1.0 + 0.5 * number}
    assert portraits.discontented(run(lengths=lengths)) == {5}
    loud = {4: lambda number: 20.0}  # nobody may have been so long always
    assert portraits.discontented(run(lengths=loud)) == {4}
