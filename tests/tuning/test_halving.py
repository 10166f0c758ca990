"""Successive halving: who goes on, what it costs, and that the best is kept."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.tuning.halving import (
    Begin,
    GoOn,
    Trial,
    Wait,
    arrived,
    best_of,
    expected_trials,
    failed,
    next_move,
    on_the_way,
    rungs_of,
    spent,
)

RUNGS = [1, 3, 9]


def trial(number, scores, **options):
    return Trial(number, {}, rounds=max(scores, default=0), scores=scores, **options)


def halved(scores, rungs, budget):
    """All trials of a search with scores by number and round; None is a failure."""
    trials = []
    while not isinstance(move := next_move(trials, rungs, budget), Wait):
        if isinstance(move, Begin):
            assert move.goal == rungs[0]
            trials.append(Trial(len(trials), {}))
        place = len(trials) - 1 if isinstance(move, Begin) else move.trial.number
        assert on_the_way(trials[place], move.goal).claimed == move.goal
        score = scores(place, move.goal)
        if score is None:
            trials[place] = failed(on_the_way(trials[place], move.goal), "diverged", 1.0)
        else:
            trials[place] = arrived(trials[place], move.goal, {move.goal: score}, 1.0)
    assert move is Wait.NO_LONGER
    return trials


@pytest.mark.parametrize(
    ("rounds", "rungs"),
    [(300, [33, 100, 300]), (700, [78, 233, 700]), (9, [1, 3, 9]), (4, [1, 4]), (1, [1])],
)
def test_runs_stop_after_a_ninth_a_third_and_all_rounds(rounds, rungs):
    assert rungs_of(rounds) == rungs


@pytest.mark.parametrize(
    ("first", "rungs"),
    [(20, [20, 33, 100, 300]), (33, [33, 100, 300]), (150, [150, 300]), (999, [300])],
)
def test_no_run_stops_before_the_first_round_that_is_asked_for(first, rungs):
    assert rungs_of(300, first) == rungs


def test_the_best_third_goes_on_and_nobody_before_there_are_three():
    two = [trial(0, {1: 0.5}), trial(1, {1: 0.4})]
    assert next_move(two, RUNGS, 90) == Begin(1)
    three = [*two, trial(2, {1: 0.6})]
    assert next_move(three, RUNGS, 90) == GoOn(three[1], 3)
    three[1] = on_the_way(three[1], 3)
    assert next_move(three, RUNGS, 90) == Begin(1)


def test_those_who_are_further_go_first():
    six = [trial(n, {1: 0.1 * n}) for n in range(3, 6)]
    third = [trial(n, {1: 0.1 * n, 3: 0.1 * n}) for n in range(3)]
    assert next_move([*third, *six], RUNGS, 90) == GoOn(third[0], 9)


def test_one_that_diverged_counts_among_those_that_came_as_far_and_never_goes_on():
    trials = [trial(0, {1: math.inf}, failure="diverged"), trial(1, {1: 2.0})]
    assert next_move([*trials, trial(2, {1: 3.0})], RUNGS, 90) == GoOn(trials[1], 3)
    worst = [trial(n, {1: math.inf}, failure="diverged") for n in range(6)]
    assert next_move(worst, RUNGS, 90) == Begin(1)
    assert best_of(worst, RUNGS) is None


def test_a_failed_run_has_cost_what_it_was_to_cost():
    one = failed(on_the_way(trial(0, {1: 0.5}), 3), "", 2.0)
    assert (one.rounds, one.goal, one.scores[3]) == (3, None, math.inf)
    assert one.failure and spent([one]) == 3


def test_the_best_is_kept_and_the_hopeless_stop_early():
    trials = halved(lambda number, rounds: (19 * number + 5) % 43, RUNGS, 9 * 12)
    best = best_of(trials, RUNGS)
    assert best.last_score == min(one.scores[1] for one in trials) and best.rounds == 9
    assert all(one.rounds == 1 for one in trials if one.scores[1] > 25)
    assert len(trials) > 2 * 12  # many more than full runs of the same cost


def test_a_slow_starter_of_the_best_third_is_found():
    """Trial 4 is third of nine at first, and far ahead at the end."""
    order = [5, 6, 7, 8, 2, 9, 0, 1, 4]
    trials = halved(lambda n, r: -1.0 if n == 4 and r > 1 else order[n % 9], RUNGS, 9 * 4)
    assert best_of(trials, RUNGS).number == 4


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(1, 400), st.randoms(use_true_random=False))
def test_a_budget_is_never_exceeded_and_always_brings_one_to_its_end(full, rounds, random):
    rungs = rungs_of(rounds)
    budget = full * rounds
    trials = halved(lambda n, r: random.random(), rungs, budget)
    assert budget - rounds < spent(trials) <= budget
    assert any(one.rounds == rounds for one in trials)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 12), st.randoms(use_true_random=False))
def test_failures_do_not_make_a_search_endless(full, random):
    trials = halved(lambda n, r: None if random.random() < 0.7 else 1.0, RUNGS, 9 * full)
    assert spent(trials) <= 9 * full


def test_methods_with_like_luck_have_the_same_rounds():
    one = halved(lambda n, r: n % 7, RUNGS, 54)
    other = halved(lambda n, r: n % 7 + 100, RUNGS, 54)
    assert spent(one) == spent(other) and len(one) == len(other)


def test_runs_on_their_way_are_waited_for_at_the_end():
    trials = [trial(0, {1: 0.5}), on_the_way(trial(1, {1: 0.4}), 3)]
    assert next_move(trials, RUNGS, 12) is Wait.FOR_A_RUN
    trials[1] = arrived(trials[1], 3, {3: 0.4}, 1.0)
    assert next_move(trials, RUNGS, 12) == GoOn(trials[1], 9)


def test_a_run_that_went_further_than_it_was_asked_to_counts_with_what_it_did():
    trials = [trial(0, {1: 0.5, 3: 0.4, 9: 0.3}), trial(1, {1: 0.6}), trial(2, {1: 0.7})]
    assert spent(trials) == 11 and best_of(trials, RUNGS).number == 0
    assert next_move(trials, RUNGS, 90) == Begin(1)


def test_about_as_many_trials_are_expected_as_there_will_be():
    for full in (1, 3, 12):
        trials = halved(lambda n, r: (n * 0.754877) % 1, RUNGS, 9 * full)
        assert abs(expected_trials(RUNGS, 9 * full) - len(trials)) <= 1 + full
