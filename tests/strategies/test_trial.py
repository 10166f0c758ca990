"""Who makes a merge worse is left out, on losses that are known."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies import trial
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.trial import (
    STEP,
    Way,
    at_hand,
    climbing,
    downhill,
    harmless,
    slopes,
)

values = st.lists(st.floats(-5, 5), min_size=1, max_size=9)


def distance(points, target=0.0):
    """The loss is how far the average of the points is from where it should be."""
    return lambda places: abs(float(np.mean([points[place] for place in places])) - target)


def test_who_leads_uphill_is_left_out_but_no_more_than_half():
    assert downhill([-1.0, 0.5, 0.0, -2.0]) == [0, 2, 3]
    assert downhill([1.0, 3.0, 2.0, 0.5]) == [0, 3]
    assert downhill([1.0]) == [0] and downhill([]) == []


def test_so_many_stay_as_are_asked_for():
    assert len(harmless(6, lambda places: float(len(places)), staying=5)) == 5
    assert harmless(3, lambda places: 1 / 0, staying=3) == [0, 1, 2]


def test_one_that_pulls_the_merge_away_is_left_out():
    assert harmless(5, distance([1, -1, 2, -2, 60])) == [0, 1, 2, 3]


def test_two_that_pull_the_same_way_are_left_out_one_after_the_other():
    assert harmless(6, distance([1, -1, 2, -2, 60, 50])) == [0, 1, 2, 3]


def test_little_harm_is_borne_where_it_costs_more_to_be_left_out():
    points = [1, 1, 1, 1, 2]  # the loss is 1.2 with the last and 1.0 without
    assert harmless(5, distance(points)) == [0, 1, 2, 3]
    assert harmless(5, distance(points), least=0.1) == [0, 1, 2, 3]
    assert harmless(5, distance(points), least=0.2) == [0, 1, 2, 3, 4]


def test_who_is_far_away_stays_where_the_others_need_it():
    """Alone it would be the worst of all, and without it the merge would be."""
    assert harmless(3, distance([-1, -1, 2])) == [0, 1, 2]


def test_half_of_the_replies_stay_whatever_they_are():
    assert len(harmless(6, lambda places: float(len(places)))) == 3
    assert len(harmless(5, lambda places: float(len(places)))) == 3
    assert harmless(1, lambda places: 1 / 0) == [0]


def test_a_merge_that_cannot_be_evaluated_is_worse_than_any():
    assert harmless(4, lambda places: inf if 2 in places else 1.0) == [0, 1, 3]


def test_nobody_stays_whose_merge_would_be_ruin():
    points = [9, 8, 1, -1]
    assert harmless(4, distance(points), most=5.0) == [2, 3]
    assert harmless(4, distance(points), staying=4, most=5.0) == [0, 1, 2, 3]
    assert harmless(4, distance(points), staying=4, most=4.0) == [1, 2, 3]
    assert harmless(3, distance([9, 8, 7]), most=7.5) == [1, 2]
    assert harmless(3, distance([9, 8, 7]), most=6.5) == []
    assert (
        harmless(1, distance([9]), most=10.0) == [0] and harmless(0, distance([]), most=0.0) == []
    )


@given(values)
def test_nobody_is_left_whose_absence_would_help_and_nothing_is_worse_than_before(points):
    loss = distance(points, target=1.0)
    kept = harmless(len(points), loss)
    assert loss(kept) <= loss(range(len(points)))
    if len(kept) > (len(points) + 1) // 2:
        assert all(loss([k for k in kept if k != one]) >= loss(kept) for one in kept)


@pytest.mark.parametrize(("most", "reads"), [(96, 0), (95, 6)])
def test_small_replies_are_held_in_memory_and_others_read_whenever_they_are_needed(
    monkeypatch, most, reads
):
    """Two replies of a mean, a precision and an extra, of four float32 numbers each."""
    monkeypatch.setattr(trial, "HELD", most)
    sent = Payload(Posterior(np.arange(4), np.ones(4)), extras={"own": np.ones(4, np.float32)})
    read = []

    def source():
        read.append(0)
        return sent

    last = at_hand([Reply(k, 10, 0, source, {}) for k in range(2)])[1]
    read.clear()
    assert all(last.payload is sent for _ in range(6))
    assert len(read) == reads
    assert at_hand([]) == []


def walked(*steps):
    way = Way()
    for step in steps:
        way = way.gone(step)
    return way


def test_whose_steps_lead_uphill_again_and_again_is_in_doubt():
    ways = {1: walked(*[0.01] * 9), 2: walked(*[0.01, -0.01] * 9), 3: walked(*[-0.01] * 9)}
    found = climbing(ways)
    assert set(found) == {1}
    assert "its share of steps uphill over the run is 1.00, and at most 0.97" in str(found[1])


def test_few_steps_prove_nothing_and_neither_does_one_long_one():
    assert not climbing({1: walked(0.01, 0.01, 0.01, 0.01), 2: Way(), 3: walked(0.0, 0.0)})
    honest = walked(*[-0.01] * 10, 40.0)
    assert honest.up == STEP and not climbing({1: honest})


def test_a_step_counts_by_the_share_of_the_loss_that_it_adds():
    """The loss is the square of the mean's distance from 1: 1 before, and .95^2 after a step."""
    sent = Payload(Posterior(np.zeros(1)))
    moves = {4: 1.0, 7: -1.0, 9: 0.0}
    replies = [
        Reply(k, 10, 0, Payload(Posterior(np.full(1, move))), {}) for k, move in moves.items()
    ]

    def trial(payload):
        return float(2 * (payload.posterior.mean[0] - 1) ** 2)

    assert slopes(replies, sent, trial) == pytest.approx(
        {4: 0.95**2 - 1, 7: 1.05**2 - 1, 9: 0.0}, abs=1e-6
    )
    assert slopes(replies, sent, lambda payload: 0.0) == {}
