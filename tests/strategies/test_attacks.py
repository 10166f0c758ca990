"""Attacks: what liars say, and that an attacker who searches finds what harms most."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedivon_app.clients.poison import claimed_size, poisoned
from fedivon_app.core.attack_settings import ON_DATA, STRENGTHS, AttackSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.trigger import with_trigger
from fedivon_app.strategies.attacks import LIES, Attack
from fedivon_app.strategies.base import Reply

SENT = Posterior(np.ones(4), np.full(4, 2.0))
CHANGES = [[1.0, 2, 3, 4], [3.0, 2, 1, 0], [-1.0, 5, 2, 2]]


def replies():
    """Partitions 0 and 1 are honest, 2 lies."""
    precision = np.array([1.0, 2.0, 3.0, 4.0])
    return [
        Reply(k, 10, 0, Payload(Posterior(1 + np.array(change), (k + 1) * precision)), {})
        for k, change in enumerate(CHANGES)
    ]


def mean_merge(lies):
    return Posterior(np.mean([reply.posterior.mean for reply in lies], axis=0))


def lie_of(kind, **options):
    attack = Attack(AttackSettings(kind=kind, clients=(2,), **options), frozenset({2}), seed=0)
    forged = attack.forged(1, replies(), SENT, mean_merge)
    for before, after in zip(replies()[:2], forged[:2], strict=True):
        np.testing.assert_array_equal(before.posterior.mean, after.posterior.mean)
    return forged[2].posterior


HONEST = np.array([2.0, 2, 2, 2])  # average change
DEVIATION = np.array([1.0, 0, 1, 2])


@pytest.mark.parametrize(
    ("kind", "strength", "change"),
    [
        ("sign-flip", 4.0, -4 * np.array(CHANGES[2])),
        ("inner-product", 2.0, -2 * HONEST),
        ("alie", 1.5, HONEST - 1.5 * DEVIATION),
        ("mimic", 1.0, CHANGES[0]),
        ("inflated-precision", 10.0, -np.array(CHANGES[2])),
        ("claimed-size", 50.0, -np.array(CHANGES[2])),
        ("collapsed-variance", 10.0, CHANGES[2]),
        ("combined", 1.0, HONEST - DEVIATION),
        ("disguised", 2.0, np.array(CHANGES[2]) - 2 * DEVIATION),
    ],
)
def test_lies_in_closed_form(kind, strength, change):
    lie = lie_of(kind, strength=strength)
    np.testing.assert_allclose(lie.mean - 1, change, atol=1e-6)


def test_lies_about_the_precision():
    own = replies()[2].posterior.precision
    np.testing.assert_allclose(lie_of("inflated-precision", strength=5.0).precision, 5 * own)
    np.testing.assert_allclose(lie_of("collapsed-variance", strength=7.0).precision, 7 * own)
    np.testing.assert_allclose(lie_of("sign-flip").precision, own)
    largest = replies()[1].posterior.precision
    np.testing.assert_allclose(lie_of("combined").precision, largest)
    poison = lie_of("poisoned-prior", strength=1.0)
    np.testing.assert_allclose(poison.precision / own, [1, 1, 1, 10])
    np.testing.assert_allclose(poison.mean - 1, [-1, 5, 2, 0], atol=1e-6)


def test_an_attacker_who_searches_does_at_least_as_much_harm():
    def harm(strength):
        lie = lie_of("alie", strength=strength).mean - 1
        return -(np.array([*CHANGES[:2], lie]).mean(axis=0) @ HONEST)

    assert harm("worst") >= max(harm(value) for value in (0.5, 1.5, 3.0))


def test_without_liars_in_a_round_nothing_is_touched():
    attack = Attack(AttackSettings(kind="sign-flip", clients=(9,)), frozenset({9}), seed=0)
    given = replies()
    assert attack.forged(1, given, SENT, mean_merge) == given


def test_every_kind_has_a_strength_and_a_lie():
    assert set(LIES) | set(ON_DATA) == set(STRENGTHS)


def test_who_lies_follows_from_the_seed():
    attack = AttackSettings(kind="alie", share=0.3)
    assert attack.liars(20, 0) == attack.liars(20, 0) and len(attack.liars(20, 0)) == 6
    assert attack.liars(20, 0) != attack.liars(20, 1)
    assert AttackSettings(share=0.3).liars(20, 0) == frozenset()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"kind": "mimic", "strength": "worst"}, "strength worst is for the kinds"),
        ({"kind": "alie", "strength": -1.0}, "above 0"),
        ({"kind": "alie", "share": 0.1, "clients": (1,)}, "either share or clients"),
        ({"kind": "sing-flip"}, "sign-flip"),
    ],
)
def test_wrong_settings_are_refused(values, told):
    with pytest.raises(ValidationError, match=told):
        AttackSettings(**values)


def test_poisoned_data():
    inputs = torch.zeros(4, 1, 8, 8)
    inputs[0, 0, 7, 7] = 0.5
    labels = torch.tensor([0, 1, 2, 9])
    same, flipped = poisoned(AttackSettings(kind="label-flip"), inputs, labels, 10)
    assert flipped.tolist() == [9, 8, 7, 0] and same is inputs
    backdoor = AttackSettings(kind="backdoor", strength=0.5, target=3)
    marked, told = poisoned(backdoor, inputs, labels, 10)
    assert told.tolist() == [3, 3, 2, 9]
    assert (marked[:2, :, :2, :2] == 0.5).all() and (marked[2:] == inputs[2:]).all()
    assert (with_trigger(torch.eye(32))[:, :2] == 1).all()
    assert claimed_size(AttackSettings(kind="claimed-size", strength=50), 7) == 350
    assert claimed_size(backdoor, 7) == 7
