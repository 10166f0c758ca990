"""Prediction sets: the promise holds, and histograms cost less than a bin."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core.conformal import (
    BINS,
    EDGES,
    SETS_SUMS,
    class_scores,
    coverage_of,
    histograms,
    prediction_sets,
    share_below,
    threshold_of,
    told_histograms,
)
from fedivon_app.core.metrics import Tally


def predictions(rng, count, classes=4, sharp=2.0):
    """Probabilities, and labels that are drawn from flatter ones: a model that is too sure."""
    logits = rng.normal(size=(count, classes)) * sharp
    given = np.exp(logits)
    true = np.exp(logits * 0.5)
    labels = [rng.choice(classes, p=row / row.sum()) for row in true]
    return (given / given.sum(1, keepdims=True)).astype(np.float32), np.array(labels)


def exact_threshold(scores, coverage):
    rank = ceil(round((len(scores) + 1) * coverage, 9))
    return np.sort(scores)[rank - 1] if rank <= len(scores) else np.inf


def true_scores(probabilities, labels):
    return class_scores(probabilities)[np.arange(len(labels)), labels]


def test_bins_are_in_order_and_fine_at_both_ends():
    assert len(EDGES) == BINS + 1 and (np.diff(EDGES) > 0).all()
    inner = EDGES[1:-1]
    widths = np.diff(inner) / np.minimum(inner[1:], 1 - inner[:-1])
    assert widths.max() < 0.021


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.floats(0.01, 0.99), st.floats(0.1, 9))
def test_the_threshold_is_the_exact_one_or_larger_by_less_than_a_bin(seed, count, level, sharp):
    probabilities, labels = predictions(np.random.default_rng(seed), count, sharp=sharp)
    counts, every = histograms(probabilities, labels)
    assert counts.sum() == count and every.sum() == 4 * count
    found = threshold_of(counts, level)
    exact = min(exact_threshold(true_scores(probabilities, labels), level), 1.0)
    place = np.searchsorted(EDGES, found)
    assert exact <= found and (found == 1 or EDGES[place - 1] < exact or place == 1)
    shared = threshold_of(3 * counts, level, distinct=count)
    assert shared == found  # examples that are told thrice count once


def test_new_examples_are_covered_as_promised():
    """The mean over calibration sets of 19 lies between the level and the level + 1/20."""
    rng = np.random.default_rng(0)
    test, truth = predictions(rng, 4000)
    covered = []
    for _ in range(400):
        counts, _ = histograms(*predictions(rng, 19))
        held = prediction_sets(test, threshold_of(counts, 0.8))
        covered.append(held[np.arange(len(truth)), truth].mean())
    mean = np.mean(covered)
    error = np.std(covered) / np.sqrt(len(covered))
    assert 0.8 - 3 * error < mean < 0.85 + 0.01 + 3 * error


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_sets_are_those_of_mapie_and_at_the_most_one_bin_larger(level):
    mapie = pytest.importorskip("mapie.classification")
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Given(ClassifierMixin, BaseEstimator):
        """A model whose inputs are its probabilities."""

        classes_ = np.arange(4)

        def fit(self, x, y):
            return self

        def __sklearn_is_fitted__(self):
            return True

        def predict_proba(self, x):
            return x

        def predict(self, x):
            return x.argmax(1)

    rng = np.random.default_rng(1)
    known, labels = predictions(rng, 300)
    new, _ = predictions(rng, 200)
    theirs = mapie.SplitConformalClassifier(
        Given(), confidence_level=level, prefit=True, conformity_score="lac"
    )
    theirs.conformalize(known, labels)
    expected = theirs.predict_set(new)[1][:, :, 0]
    found = threshold_of(histograms(known, labels)[0], level)
    ours = prediction_sets(new, found)
    assert (ours | ~expected).all()  # none of theirs is missing
    below = EDGES[np.searchsorted(EDGES, found) - 1]
    more = ours & ~expected
    assert (class_scores(new)[more] > below).all() and more.mean() < 0.01


def test_clients_are_pooled_and_each_is_measured_by_the_others():
    rng = np.random.default_rng(2)
    parts = {p: predictions(rng, 40 + 10 * p) for p in range(12)}
    probabilities = parts[11][0]
    parts[11] = probabilities, probabilities.argmin(1)  # one for whom the model is bad
    told = {p: histograms(*part) for p, part in parts.items()}
    found = coverage_of(told, 0.9)
    pooled = [np.concatenate(arrays) for arrays in zip(*parts.values(), strict=True)]
    assert found.threshold == threshold_of(histograms(*pooled)[0], 0.9)
    assert found.examples == len(pooled[1]) and found.clients == 12
    sizes = prediction_sets(pooled[0], found.threshold).sum(1)
    assert found.size == pytest.approx(sizes.mean())
    shares = []
    for own in told:
        others = sum(told[p][0] for p in told if p != own)
        held = prediction_sets(parts[own][0], threshold_of(others, 0.9))
        shares.append(held[np.arange(len(held)), parts[own][1]].mean())
    weights = [len(part[1]) for part in parts.values()]
    assert found.overall == pytest.approx(np.average(shares, weights=weights))
    assert found.worst_tenth == pytest.approx(min(shares)) and found.worst_tenth < 0.5
    alone = coverage_of({0: told[0]}, 0.9)
    assert alone.overall is None and alone.worst_tenth is None


def test_too_few_examples_give_every_class():
    probabilities, labels = predictions(np.random.default_rng(3), 8)
    found = coverage_of({0: histograms(probabilities, labels)}, 0.9)
    assert found.threshold == 1 and found.size == 4
    with pytest.raises(ValueError, match="no held-out examples"):
        coverage_of({}, 0.9)


def test_histograms_travel_in_tallies_and_unsound_ones_are_left_out():
    probabilities, labels = predictions(np.random.default_rng(4), 20)
    sums = SETS_SUMS.sums(probabilities, labels)
    sound = Tally.of(probabilities, labels, {"sets": sums})
    back = Tally.from_dict(sound.to_dict())
    other = Tally.of(probabilities, labels, {"sets": 2 * sums})
    negative = Tally.of(probabilities, labels, {"sets": sums - 1})
    without = Tally.of(probabilities, labels)
    told = {0: {"mean": back}, 1: {"mean": other}, 2: {"mean": without}, 3: {"mean": negative}}
    found = told_histograms(told | {4: {"mean": without, "mc": sound}})
    assert list(found) == [0, 4]
    np.testing.assert_array_equal(found[0], histograms(probabilities, labels))
    assert share_below(found[0][0], 1.0) == 1
