import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

from fedivon_app.core.metrics import (
    Tally,
    auroc,
    classification,
    reliability,
    retention_curve,
    uncertainty,
)
from fedivon_app.datasets.vision import torchvision_datasets

modest = settings(deadline=None, max_examples=50)
seeds = st.integers(0, 2**32 - 1)


def predictions(seed: int, count: int = 500, classes: int = 5, concentration: float = 0.5):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, concentration), count).astype(np.float32)
    return probabilities, rng.integers(0, classes, count)


@pytest.fixture(scope="module")
def calibration_error():
    """Return torchmetrics' own.

    It imports torchvision, which may be a build that does not match torch's.
    """
    torchvision_datasets()
    from torchmetrics.functional.classification import multiclass_calibration_error

    return multiclass_calibration_error


HAND = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.5, 0.3, 0.2], [0.25, 0.72, 0.03]])
HAND_LABELS = np.array([0, 1, 0, 1])


def test_four_scores_by_hand():
    scores = classification(HAND, HAND_LABELS)
    assert scores["accuracy"] == 3 / 4
    assert scores["nll"] == pytest.approx(-np.log([0.7, 0.1, 0.5, 0.72]).mean())
    brier = [0.09 + 0.04 + 0.01, 0.01 + 0.81 + 0.64, 0.25 + 0.09 + 0.04, 0.0625 + 0.0784 + 0.0009]
    assert scores["brier"] == pytest.approx(np.mean(brier))
    # confidences .7 and .72 share the bin (10/15, 11/15]; .8 (wrong) and .5 have their own
    assert scores["ece"] == pytest.approx((abs(2 - 1.42) + 0.8 + 0.5) / 4)


def test_reliability_by_hand():
    bins = reliability(HAND, HAND_LABELS)
    assert np.flatnonzero(bins["count"]).tolist() == [7, 10, 11]
    assert bins["count"][[7, 10, 11]].tolist() == [1, 2, 1]
    np.testing.assert_allclose(bins["confidence"][[7, 10, 11]], [0.5, 0.71, 0.8])
    np.testing.assert_allclose(bins["accuracy"][[7, 10, 11]], [1, 1, 0])
    assert np.isnan(bins["confidence"][0])
    assert np.isnan(bins["accuracy"][0])
    for name, values in reliability(Tally.of(HAND, HAND_LABELS)).items():
        np.testing.assert_array_equal(values, bins[name])


@pytest.mark.parametrize(
    ("confidence", "place"), [(1.0, 14), (14 / 15, 13), (14 / 15 + 1e-9, 14), (0.5, 7)]
)
def test_a_bin_holds_its_upper_edge(confidence, place):
    tally = Tally.of(np.array([[confidence, 1 - confidence]]), np.array([0]))
    assert np.flatnonzero(tally.bin_count).tolist() == [place]


@pytest.mark.parametrize("classes", [2, 5, 26])
@pytest.mark.parametrize("concentration", [0.1, 1.0])
def test_agreement_with_scikit_learn_and_torchmetrics(classes, concentration, calibration_error):
    probabilities, labels = predictions(classes, 1000, classes, concentration)
    probabilities = np.maximum(probabilities, 1e-6).astype(np.float64)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    scores = classification(probabilities, labels)
    every = np.arange(classes)
    assert scores["accuracy"] == accuracy_score(labels, probabilities.argmax(axis=1))
    assert scores["nll"] == pytest.approx(log_loss(labels, probabilities, labels=every))
    brier = brier_score_loss(labels, probabilities, labels=every, scale_by_half=False)
    assert scores["brier"] == pytest.approx(brier)
    expected = calibration_error(
        torch.tensor(probabilities), torch.tensor(labels), num_classes=classes, n_bins=15, norm="l1"
    ).item()
    assert scores["ece"] == pytest.approx(expected, abs=1e-6)


def test_a_probability_of_zero_costs_the_smallest_float32_and_not_infinity():
    scores = classification(np.array([[1.0, 0.0]]), np.array([1]))
    assert scores["nll"] == pytest.approx(-np.log(np.finfo(np.float32).tiny))
    assert scores == pytest.approx({"accuracy": 0, "nll": scores["nll"], "ece": 1, "brier": 2})


def test_certain_and_right_is_perfect():
    scores = classification(np.eye(4), np.arange(4))
    assert scores == {"accuracy": 1, "nll": 0, "ece": 0, "brier": 0}


@modest
@given(seeds, st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_pooled_tallies_are_the_tally_of_all(seed, sizes):
    probabilities, labels = predictions(seed, sum(sizes))
    cuts = np.cumsum(sizes)[:-1]
    parts = zip(np.split(probabilities, cuts), np.split(labels, cuts), strict=True)
    pooled = sum((Tally.of(*part) for part in parts), Tally())
    assert pooled.scores() == pytest.approx(
        classification(probabilities, labels), rel=1e-9, abs=1e-12
    )


def test_pooled_ece_is_not_the_average_of_ece():
    right = Tally.of(np.array([[0.8, 0.2]]), np.array([0]))
    wrong = Tally.of(np.array([[0.8, 0.2]]), np.array([1]))
    assert right.scores()["ece"] == pytest.approx(0.2)
    assert wrong.scores()["ece"] == pytest.approx(0.8)
    assert (right + wrong).scores()["ece"] == pytest.approx(0.3)


@modest
@given(seeds, st.integers(1, 60), st.integers(2, 8))
def test_scores_stay_within_their_bounds(seed, count, classes):
    scores = classification(*predictions(seed, count, classes))
    assert 0 <= scores["accuracy"] <= 1
    assert 0 <= scores["ece"] <= 1
    assert 0 <= scores["brier"] <= 2 + 1e-6
    assert scores["nll"] >= -1e-6


@modest
@given(seeds, st.integers(1, 60))
def test_a_tally_survives_the_wire(seed, count):
    probabilities, labels = predictions(seed, count)
    tally = Tally.of(probabilities, labels, {"own": np.array([-1.5, 0.1 * count])})
    received = Tally.from_dict(json.loads(json.dumps({"num-examples": 3, **tally.to_dict()})))
    assert received.sums["own"].tolist() == [-1.5, 0.1 * count]
    assert received.to_dict() == tally.to_dict()
    assert all(isinstance(value, float | list) for value in tally.to_dict().values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nll_sum": None}, "needs 'nll_sum'"),
        ({"bin_count": [1.0] * 14}, "'bin_count' has shape"),
        ({"count": [4.0]}, "'count' has shape"),
        ({"brier_sum": float("nan")}, "'brier_sum' must be finite"),
        ({"nll_sum": -1.0}, "'nll_sum' must be finite and not negative"),
        ({"count": 5.0}, "do not add up"),
        ({"correct": 1.0}, "do not add up"),
        ({"score.own": [1.0, float("inf")]}, "'own'.*finite"),
    ],
)
def test_a_dictionary_that_is_no_tally_is_refused(change, message):
    values = Tally.of(HAND, HAND_LABELS).to_dict() | change
    with pytest.raises(ValueError, match=message):
        Tally.from_dict({name: value for name, value in values.items() if value is not None})


def test_an_empty_tally_has_no_scores():
    with pytest.raises(ValueError, match="no examples"):
        Tally().scores()


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (np.ones(3), [0, 0, 0], r"shape \(N, C\)"),
        (np.ones((3, 1)), [0, 0, 0], "at least 2 classes"),
        (np.zeros((0, 3)), np.zeros(0, int), "empty"),
        (HAND, [0, 1, 2], "do not fit"),
        (HAND, [[0], [1], [2], [0]], "do not fit"),
        (HAND, [0, 1, 2, 3], "from 0 to 3, outside of 0 to 2"),
        (HAND, [0, 1, -1, 2], "from -1 to 2"),
        (HAND, [0.0, 1.0, 2.0, 0.0], "whole class numbers"),
        (2 * HAND, HAND_LABELS, "row 0 is no distribution"),
        (np.log(HAND), HAND_LABELS, "row 0 is no distribution"),
        (np.where(HAND == 0.8, np.nan, HAND), HAND_LABELS, "row 1 is no distribution"),
        (np.array([[1.5, -0.5]]), [0], "row 0 is no distribution"),
    ],
)
def test_wrong_input_is_named(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        classification(probabilities, labels)


def test_auroc_by_hand():
    assert auroc([0.1, 0.2], [0.3, 0.4]) == 1
    assert auroc([0.3, 0.4], [0.1, 0.2]) == 0
    assert auroc([0.5], [0.5]) == 0.5
    assert auroc([1, 2, 3], [2, 4]) == pytest.approx((1 + 0.5 + 0 + 3) / 6)


@modest
@given(seeds, st.integers(1, 50), st.integers(1, 50))
def test_auroc_agrees_with_scikit_learn_ties_included(seed, count_in, count_out):
    rng = np.random.default_rng(seed)
    inside = rng.integers(0, 6, count_in)
    outside = rng.integers(1, 8, count_out)
    truth = np.repeat([0, 1], [count_in, count_out])
    assert auroc(inside, outside) == pytest.approx(
        roc_auc_score(truth, np.concatenate([inside, outside]))
    )
    assert auroc(inside, outside) + auroc(outside, inside) == pytest.approx(1)


def test_auroc_refuses_what_cannot_be_ranked():
    with pytest.raises(ValueError, match="scores_out must be a vector with at least one entry"):
        auroc([1.0], [])
    with pytest.raises(ValueError, match="scores_in holds 1 NaN"):
        auroc([np.nan, 1.0], [1.0])


def test_uncertainty_by_hand():
    samples = np.array([[[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]])
    result = uncertainty(samples)
    np.testing.assert_allclose(result["entropy"], [1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(result["aleatoric"], [0, 0.5, 0])
    np.testing.assert_allclose(result["epistemic"], [0.5, 0, 0])


@modest
@given(seeds, st.integers(1, 6), st.integers(1, 8), st.integers(2, 6))
def test_uncertainty_is_the_trace_of_the_matrices_and_adds_up(seed, num_samples, count, classes):
    samples = np.random.default_rng(seed).dirichlet(np.full(classes, 0.4), (num_samples, count))
    result = uncertainty(samples)
    mean = samples.mean(axis=0)
    outer = np.einsum("mnc,mnd->mncd", samples, samples)
    diagonal = np.einsum("mnc,cd->mncd", samples, np.eye(classes))
    deviation = samples - mean
    aleatoric = np.trace((diagonal - outer).mean(axis=0), axis1=1, axis2=2)
    epistemic = np.trace(
        np.einsum("mnc,mnd->ncd", deviation, deviation) / num_samples, axis1=1, axis2=2
    )
    np.testing.assert_allclose(result["aleatoric"], aleatoric, atol=1e-12)
    np.testing.assert_allclose(result["epistemic"], epistemic, atol=1e-12)
    total = (mean * (1 - mean)).sum(axis=1)
    np.testing.assert_allclose(result["aleatoric"] + result["epistemic"], total, atol=1e-12)
    assert (result["entropy"] >= -1e-12).all()
    assert (result["entropy"] <= 1 + 1e-12).all()


def test_uncertainty_needs_samples_of_distributions():
    with pytest.raises(ValueError, match=r"shape \(M, N, C\)"):
        uncertainty(HAND)
    with pytest.raises(ValueError, match="M at least 1"):
        uncertainty(np.zeros((0, 4, 3)))
    with pytest.raises(ValueError, match="no distribution"):
        uncertainty(np.stack([HAND, 2 * HAND]))


def test_retention_curve_by_hand():
    correct = [1, 0, 1, 1]
    uncertain = [0.1, 0.9, 0.3, 0.2]
    np.testing.assert_allclose(
        retention_curve(correct, uncertain, [0.25, 0.5, 0.75, 1]), [1, 1, 1, 0.75]
    )
    np.testing.assert_allclose(
        retention_curve(correct, [-u for u in uncertain], [0.25, 0.5, 1]), [0, 0.5, 0.75]
    )
    assert retention_curve(correct, uncertain, [0.01]).tolist() == [1]
    assert retention_curve(correct, uncertain).shape == (20,)


@modest
@given(seeds, st.integers(1, 40))
def test_retention_does_not_depend_on_the_order_of_the_examples(seed, count):
    rng = np.random.default_rng(seed)
    correct = rng.integers(0, 2, count)
    uncertain = rng.integers(0, 4, count)
    order = rng.permutation(count)
    curve = retention_curve(correct, uncertain)
    np.testing.assert_allclose(curve, retention_curve(correct[order], uncertain[order]))
    assert curve[-1] == pytest.approx(correct.mean())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 0], [0.1]), "one entry per example"),
        (([], []), "at least one entry"),
        (([1], [np.nan]), "1 NaN"),
        (([1], [0.5], [0.0]), r"in \(0, 1\]"),
        (([1], [0.5], [1.1]), r"in \(0, 1\]"),
    ],
)
def test_retention_refuses_what_it_cannot_order(arguments, message):
    with pytest.raises(ValueError, match=message):
        retention_curve(*arguments)


def test_reliability_takes_a_tally_or_predictions():
    with pytest.raises(ValueError, match="a Tally, or probabilities with their labels"):
        reliability(HAND)
    with pytest.raises(ValueError, match="a Tally, or probabilities with their labels"):
        reliability(Tally(), HAND_LABELS)
