"""The search with scores that are known: optima are found, equal budgets, nothing is forgotten."""

import json
import math
from dataclasses import replace

import pytest

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.search_range import Choices, Range, choices, even_range, log_range
from fedivon_app.runs.plan import plan_runs
from fedivon_app.tuning.halving import Trial, spent
from fedivon_app.tuning.proposals import propose
from fedivon_app.tuning.search import Clock, Way, end_text, start_text
from fedivon_app.tuning.study import Study, Subject
from tests.tuning.helpers import search

RATE = "client.learning_rate"
MOMENTUM = "client.momentum"
OPTIMIZER = "client.optimizer"
SPACE = {
    RATE: log_range(1e-3, 1.0),
    MOMENTUM: even_range(0.0, 0.9),
    OPTIMIZER: choices("adam", "sgd"),
}
WORDS = ["rounds=9", "data.clients=4", "clients_per_round=null", f"{RATE}=0.01"]


def subject_of(strategy="fedavg", space=SPACE, words=()):
    (plan,) = plan_runs("demo", {"strategy": [strategy]}, [*WORDS, *words])
    return Subject(plan.settings, space)


def study_of(tmp_path, full=12, name="fedavg", **options):
    return Study(subject_of(**options), 9 * full, tmp_path / f"{name}.jsonl")


def bowl(values, rounds):
    """The best is a rate of 0.1 with momentum 0.5 and SGD; more rounds are better for all."""
    distance = math.log10(values[RATE] / 0.1) ** 2 + (values[MOMENTUM] - 0.5) ** 2
    return distance + (values[OPTIMIZER] == "adam") + 1 / rounds


@pytest.mark.parametrize("seed", range(3))
def test_a_known_optimum_is_found_within_the_budget(tmp_path, seed):
    study = study_of(tmp_path, words=[f"seed={seed}"])
    search(study, bowl)
    best = study.winner
    assert best.values[OPTIMIZER] == "sgd" and 0.04 < best.values[RATE] < 0.25
    assert best.last_score - 1 / 9 < 0.15 and spent(study.trials) <= 9 * 12
    assert bowl(study.trials[0].values, 9) > 2  # the experiment's own values are the first tried


def test_proposals_beat_values_by_chance(tmp_path):
    study = study_of(tmp_path)
    search(study, bowl)
    half = len(study.trials) // 2
    early = sorted(bowl(trial.values, 1) for trial in study.trials[:half])
    late = sorted(bowl(trial.values, 1) for trial in study.trials[half:])
    assert late[len(late) // 2] < early[len(early) // 2]


def test_methods_have_the_same_budget_in_rounds(tmp_path):
    studies = [study_of(tmp_path, name=name, strategy=name) for name in ("fedavg", "fedprox")]
    for study in studies:
        search(study, lambda values, rounds: bowl(values, rounds) % 0.7)
    assert studies[0].budget == studies[1].budget == 108
    assert all(99 < spent(study.trials) <= 108 for study in studies)


def test_a_study_that_was_left_proposes_what_it_would_have(tmp_path):
    whole = study_of(tmp_path, name="whole", full=6)
    search(whole, bowl)
    for runs in (1, 4, 3, 0, 11, 1000):
        search(study_of(tmp_path, name="parts", full=6), bowl, most=runs)
    parts = study_of(tmp_path, name="parts", full=6)
    assert parts.trials == whole.trials


def test_a_run_on_its_way_is_known_after_a_stop(tmp_path):
    study = study_of(tmp_path)
    search(study, bowl, most=3)
    trial = study.next()
    again = study_of(tmp_path)
    assert again.unfinished == [trial] and again.trials == study.trials
    assert again.share_spent == study.share_spent


def test_a_line_that_was_cut_off_does_no_harm(tmp_path):
    study = study_of(tmp_path)
    search(study, bowl, most=3)
    with open(study.file, "a") as file:
        file.write('{"ends": 2, "rou')
    again = study_of(tmp_path)
    assert again.trials == study.trials
    search(again, bowl, most=1)
    assert study_of(tmp_path).trials == again.trials
    assert all(json.loads(line) for line in study.file.read_text().splitlines())


def test_failures_are_kept_and_are_not_proposed_again(tmp_path):
    """Whatever is above 0.1 diverges."""
    study = study_of(tmp_path, space={RATE: log_range(1e-3, 10.0)})

    def score(values, rounds):
        return None if values[RATE] > 0.1 else math.log10(0.1 / values[RATE]) + 1 / rounds

    search(study, score)
    again = study_of(tmp_path, space={RATE: log_range(1e-3, 10.0)})
    assert again.trials == study.trials and study.winner.values[RATE] > 0.03
    wrong = [trial for trial in study.trials if trial.failure]
    half = len(study.trials) // 2
    assert len([t for t in wrong if t.number >= half]) < len([t for t in wrong if t.number < half])


def test_more_budget_goes_on_with_the_same_trials(tmp_path):
    study = study_of(tmp_path, full=3)
    search(study, bowl)
    more = study_of(tmp_path, full=6)
    search(more, bowl)
    assert len(more.trials) > len(study.trials)
    assert [t.values for t in more.trials[: len(study.trials)]] == [t.values for t in study.trials]


def test_a_study_of_something_else_is_not_gone_on_with(tmp_path):
    study_of(tmp_path)
    with pytest.raises(SettingsError, match="client.epochs is 7 and was 2.*--name"):
        study_of(tmp_path, words=["client.epochs=7"])
    with pytest.raises(SettingsError, match="ranges.client.learning_rate is '0.001:2:log'"):
        study_of(tmp_path, space={**SPACE, RATE: log_range(1e-3, 2.0)})


def test_proposals_are_valid_whatever_has_been_tried():
    space = {"a": Range(1, 5, whole=True), "b": Choices(("x", 2.5, True)), "c": log_range(1e-9, 1)}
    tried: list[Trial] = []
    for number in range(25):
        values = propose(space, tried, [1, 3, 9], seed=4)
        assert isinstance(values["a"], int) and 1 <= values["a"] <= 5
        assert values["b"] in ("x", 2.5, True) and 1e-9 <= values["c"] <= 1
        one = Trial(number, values, rounds=1, scores={1: values["c"]})
        tried.append(replace(one, goal=1, scores={}) if number % 5 == 4 else one)
    assert len({trial.values["c"] for trial in tried}) == 25


def test_lines_say_which_trial_and_the_best_so_far(tmp_path):
    study = study_of(tmp_path)
    trial = study.next()
    line = start_text(Way(study, trial))
    assert line.startswith(f"fedavg, trial 1 of about {study.expected}: {RATE}=0.01 ")
    assert line.endswith("to round 1 ...")
    assert end_text(study, study.arrived(trial, 1, {1: 0.5}, 1.0)).endswith(
        "held-out NLL 0.5000 after round 1; best so far 0.5000 (trial 1, round 1)"
    )
    bad = study.failed(study.next(), "round 1: diverged", 1.0)
    assert "trial 2 of about" in end_text(study, bad)
    assert "failed: round 1: diverged; best so far 0.5000" in end_text(study, bad)


def test_time_that_is_left_is_that_of_the_rounds_before():
    clock = Clock(slots=2)
    assert clock.left({"fedavg": 10}) is None
    clock.ran("fedavg", 10, 20.0)
    assert clock.left({"fedavg": 10, "fedivon": 10}) == pytest.approx((20 + 20) / 2)
    clock.ran("fedivon", 10, 60.0)
    assert clock.left({"fedavg": 10, "fedivon": 10}) == pytest.approx((20 + 60) / 2)
    assert clock.text({"fedavg": 10}) == "0 s so far, about 10 s left"
