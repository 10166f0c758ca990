"""Scores: pooled over clients they are those of all examples, the user's own included."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core.client_scores import from_metrics, gathered, to_metrics
from fedivon_app.core.errors import SettingsError, UserError
from fedivon_app.core.metrics import Tally, classification
from fedivon_app.core.registry import Registry
from fedivon_app.core.scores import SCORES, Score, chosen_scores, known_scores, tally_of, values_of


def margin_sums(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The sum of the margins p_y - max of the others, and that of their squares."""
    rows = np.arange(len(labels))
    truth = probabilities[rows, labels]
    others = probabilities.copy()
    others[rows, labels] = -1
    margins = truth - others.max(axis=1)
    return np.array([margins.sum(), np.square(margins).sum()])


def margin_deviation(tally: Tally) -> float:
    """The standard deviation of the margin: no average of the clients' ones is that of all."""
    first, second = tally.sums["margin"] / tally.count
    return float(np.sqrt(max(second - first**2, 0.0)))


MARGIN = Score("margin", "Margin's deviation", False, value=margin_deviation, sums=margin_sums)
COUNT = Score("ones", "Ones", True, value=lambda t: t.sums["ones"][0], sums=lambda p, y: len(y))
PATH = "tests.core.test_scores:MARGIN"
OTHER_MARGIN = Score("margin", "Another", True, value=lambda tally: 0.0)
NO_SCORE = 3


def predictions(seed: int, count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(4, 0.5), count)
    return {"probabilities": probabilities, "labels": rng.integers(0, 4, count)}


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_a_pooled_score_is_that_of_all_examples_together(seed, sizes):
    every = predictions(seed, sum(sizes))
    chosen = chosen_scores([PATH])
    cuts = np.cumsum(sizes)[:-1]
    parts = zip(*(np.split(every[name], cuts) for name in every), strict=True)
    tallies = [tally_of(probabilities, labels, chosen) for probabilities, labels in parts]
    pooled = values_of(sum(tallies, Tally()), chosen)
    together = values_of(tally_of(**every, scores=chosen), chosen)
    assert pooled == pytest.approx(together, rel=1e-9, abs=1e-7)
    assert list(pooled) == ["accuracy", "nll", "ece", "brier", "margin"]
    own = pooled.pop("margin")
    assert pooled == pytest.approx(classification(**every), rel=1e-9, abs=1e-12)
    rows = [
        margin_sums(every["probabilities"][k : k + 1], every["labels"][k : k + 1])[0]
        for k in range(sum(sizes))
    ]
    assert own == pytest.approx(np.std(rows), abs=1e-7)


def test_an_own_score_of_several_clients_is_no_average_of_theirs():
    """Two clients, each of them with one margin, so that neither has a deviation."""
    sure = tally_of(np.array([[0.9, 0.1]]), np.array([0]), {"margin": MARGIN})
    unsure = tally_of(np.array([[0.6, 0.4]]), np.array([0]), {"margin": MARGIN})
    for one in (sure, unsure):
        assert MARGIN.value(one) == pytest.approx(0, abs=1e-7)
    assert MARGIN.value(sure + unsure) == pytest.approx((0.8 - 0.2) / 2)


def test_an_own_score_goes_over_the_wire_and_into_the_rounds_record():
    chosen = chosen_scores([PATH])
    clients = {k: predictions(k, 5 + k) for k in range(3)}
    replies = {}
    for k, one in clients.items():
        sent = to_metrics({"gm": {"mean": tally_of(**one, scores=chosen)}})
        replies[k] = from_metrics(json.loads(json.dumps(sent)))
    record = gathered(replies, {k: 10 for k in clients}, 4, chosen)["gm"]["clients_before_training"]
    every = {
        name: np.concatenate([one[name] for one in clients.values()])
        for name in ("probabilities", "labels")
    }
    assert record["mean"] == pytest.approx(values_of(tally_of(**every, scores=chosen), chosen))
    for k, own in enumerate(record["by_client"]):
        expected = values_of(tally_of(**clients[k], scores=chosen), chosen)
        assert own == pytest.approx({"partition": k, "num_train": 10, **expected})


def test_sums_may_be_one_number_and_are_added_to_those_of_others():
    own = {"ones": COUNT}
    three = tally_of(**predictions(0, 3), scores=own)
    assert three.sums["ones"].tolist() == [3.0] and three.sums["ones"].dtype == np.float64
    four = tally_of(**predictions(1, 4), scores=own)
    assert values_of(three + four, own) == {"ones": 7.0}
    assert values_of(three + Tally() + four, own) == {"ones": 7.0}


def test_a_score_without_the_sums_of_every_client_is_left_out():
    """A client of an older version sends none; a score of some of the clients would mislead."""
    chosen = chosen_scores([PATH])
    with_sums = tally_of(**predictions(0, 3), scores=chosen)
    without = tally_of(**predictions(1, 4))
    assert "margin" in values_of(with_sums, chosen)
    assert list(values_of(without, chosen)) == list(SCORES)
    assert list(values_of(with_sums + without, chosen)) == list(SCORES)
    assert list(values_of(without + with_sums, chosen)) == list(SCORES)


@pytest.mark.parametrize("length", [1, 3])
def test_sums_of_another_length_are_not_added(length):
    """A client whose score is another one under the same name has no say in everybody's."""
    own = tally_of(**predictions(0, 3), scores={"margin": MARGIN})
    other = Tally.of(**predictions(1, 4), sums={"margin": np.ones(length)})
    for pooled in (own + other, other + own):
        assert list(values_of(pooled, chosen_scores([PATH]))) == list(SCORES)


def test_no_examples_have_no_scores():
    with pytest.raises(ValueError, match="the tally holds no examples"):
        values_of(Tally())


@pytest.mark.parametrize(
    ("name", "heading", "text", "better"),
    [
        ("accuracy", "Accuracy %", "12.35", 0.2),
        ("nll", "NLL", "0.1235", 0.1),
        ("ece", "ECE", "0.1235", 0.1),
        ("brier", "Brier", "0.1235", 0.1),
    ],
)
def test_how_the_projects_scores_are_shown_and_which_way_is_better(name, heading, text, better):
    score = SCORES[name]
    assert score.name == name
    assert score.heading == heading
    assert score.text(0.123456) == text
    assert score.better(better, 0.123456) and not score.better(0.123456, better)
    assert not score.better(0.5, 0.5)
    assert not score.better(float("nan"), 0.5) and not score.better(0.5, float("nan"))


def test_an_own_score_says_its_digits_and_its_unit():
    plain = Score("x", "X", False, value=lambda tally: 0.0)
    assert (plain.heading, plain.text(0.5)) == ("X", "0.5000")
    share = Score("x", "X", True, value=lambda tally: 0.0, digits=1, percent=True)
    assert (share.heading, share.text(0.5)) == ("X %", "50.0")


def test_scores_are_chosen_by_import_path_beside_the_projects():
    assert chosen_scores() == dict(SCORES)
    chosen = chosen_scores([PATH])
    assert list(chosen) == [*SCORES, "margin"] and chosen["margin"] is MARGIN
    assert chosen_scores([PATH, PATH]) == chosen
    assert chosen_scores(["nll"]) == dict(SCORES)


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        (["margin"], "there is no score 'margin': choose from accuracy, auprc, auroc, brier"),
        (["nowhere:MARGIN"], "score 'nowhere:MARGIN': there is no module 'nowhere' to import"),
        (["tests.core.test_scores:MARGINS"], "has no 'MARGINS'; did you mean MARGIN?"),
        (["tests.core.test_scores:NO_SCORE"], "is 3, but Score is needed"),
        (["tests.core.test_scores:margin_sums"], "but Score is needed"),
    ],
)
def test_a_score_that_is_none_is_named(paths, says):
    with pytest.raises(SettingsError) as caught:
        chosen_scores(paths)
    assert says in str(caught.value)


def test_two_scores_of_one_name_are_refused():
    with pytest.raises(UserError, match="there is another score of the name 'margin'"):
        chosen_scores([PATH, "tests.core.test_scores:OTHER_MARGIN"])


def test_who_only_reads_results_need_not_have_the_users_package():
    found = known_scores([PATH, "a_package_that_is_not_there.scores:SHARPNESS"])
    assert list(found) == [*SCORES, "margin", "sharpness"]
    assert found["margin"] is MARGIN
    assert found["sharpness"].heading == "sharpness"
    assert np.isnan(found["sharpness"].value(Tally()))


def test_one_line_adds_a_score_for_everybody():
    more = Registry("score", {**SCORES, "margin": MARGIN}, kind=Score)
    assert "margin" in values_of(tally_of(**predictions(0, 3), scores=more), more)
