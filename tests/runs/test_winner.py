"""Who won, and whether it is more than chance."""

import numpy as np
import pytest
from scipy import stats

from fedivon_app.core.scores import SCORES
from fedivon_app.runs.winner import closing_lines, more_seeds, verdict

ACCURACY = SCORES["accuracy"]
NLL = SCORES["nll"]


def test_differences_are_paired_by_seed():
    """The seeds differ by far more than the methods do, which pairs do not see."""
    level = {0: 0.5, 1: 0.7, 2: 0.9}
    values = {"a": level, "b": {s: v + 0.01 + 0.001 * s for s, v in level.items()}}
    found = verdict(values, ACCURACY)
    assert found.best == "b" and found.certain and found.seeds == 3
    difference = [0.01, 0.011, 0.012]
    expected = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    low, high = (f"{100 * end:.2f}" for end in expected)
    assert found.text == (
        "By accuracy (the share of right answers), b is ahead of a: 71.10 % and 70.00 %, "
        f"a lead of 1.10 points. Judging by 3 seeds it lies between {low} and {high} points "
        "(95 % interval), so it is more than chance."
    )


def test_lower_is_better_for_nll_and_chance_is_called_so():
    values = {"a": {0: 1.0, 1: 1.2}, "b": {0: 0.9, 1: 1.25}}
    found = verdict(values, NLL)
    assert found.best == "b" and not found.certain and found.low < 0 < found.high
    assert "so it may be chance" in found.text


def test_a_lead_is_never_said_to_be_more_than_there_can_be():
    values = {"a": {0: 0.5, 1: 0.7}, "b": {0: 0.6, 1: 0.99}}
    found = verdict(values, ACCURACY)
    assert found.high > 1 and found.low < -1
    assert "it lies between -100.00 and 100.00 points" in found.text


def test_against_several_every_interval_is_wider():
    rng = np.random.default_rng(0)
    a = dict(enumerate(0.8 + 0.001 * rng.normal(size=4)))
    others = {
        name: {s: a[s] - d for s, d in enumerate(differences)}
        for name, differences in {
            "b": [0.01, 0.012, 0.011, 0.013],
            "c": [0.05, 0.051, 0.052, 0.05],
            "d": [0.1, -0.02, 0.1, 0.09],
        }.items()
    }
    alone = verdict({"a": a, "b": others["b"]}, ACCURACY)
    among = verdict({"a": a, "b": others["b"], "c": others["c"]}, ACCURACY)
    assert alone.certain and among.certain and among.low < alone.low
    assert not verdict({"a": a, **others}, ACCURACY).certain  # d may be as good


def summary(strategy, seed, accuracy, *, experiment="demo", part="final", place="test"):
    scores = {"accuracy": accuracy, "nll": 1 - accuracy}
    return {
        "experiment": experiment,
        "strategy": strategy,
        "seed": seed,
        "final": None,
        part: {place: {"mean": scores}},
    }


def test_one_seed_cannot_tell_and_says_so():
    lines = closing_lines([summary("a", 0, 0.5), summary("b", 0, 0.6)])
    assert lines[0] == (
        "By accuracy (the share of right answers), b is ahead of a: 60.00 % and 50.00 %, "
        "a lead of 10.00 points under one seed."
    )
    assert lines[-1].startswith("One seed cannot tell")
    assert closing_lines([summary("a", 0, 0.5), summary("a", 1, 0.6)]) == []
    assert closing_lines([]) == []
    other = summary("b", 0, 0.6, experiment="other")
    assert closing_lines([summary("a", 0, 0.5), other]) == []


def test_a_method_without_a_global_model_is_compared_at_the_clients():
    shared = summary("a", 0, 0.5)
    shared["final"]["clients_before_training"] = {"mean": {"accuracy": 0.4, "nll": 0.6}}
    personal = summary("b", 0, 0.9, part="personal", place="clients_after_training")
    first, *_ = closing_lines([shared, personal])
    assert "b is ahead of a: 90.00 % and 40.00 %, a lead of 50.00 points" in first


def test_numbers_are_compared_by_their_error():
    runs = [summary("a", 0, 0.5), summary("b", 0, 0.5)]
    for run, rmse in zip(runs, (2.0, 1.5), strict=True):
        run["final"]["test"]["mean"] = {"rmse": rmse, "nll": 2 * rmse}
    first, second, _ = closing_lines(runs)
    assert first == (
        "By RMSE (the usual size of an error; lower is better), b is ahead of a: 1.5000 and "
        "2.0000, a lead of 0.5000 under one seed."
    )
    assert second.startswith("By NLL (") and "b is ahead of a: 3.0000 and 4.0000" in second


def test_only_seeds_that_all_have_are_counted():
    values = {"a": {0: 0.5, 1: 0.5, 7: 0.0}, "b": {0: 0.5, 1: 0.5, 8: 1.0}}
    found = verdict(values, ACCURACY)
    assert found.seeds == 2 and "are level" in found.text


def test_more_seeds_are_asked_for_than_were_used():
    assert more_seeds({0}) == [0, 1, 2, 3, 4]
    assert more_seeds({0, 1, 2}) == [0, 1, 2, 3, 4, 5]
    assert more_seeds({1, 2, 3, 4, 5}) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert more_seeds({2, 4}) == [2, 3, 4, 5, 6]
