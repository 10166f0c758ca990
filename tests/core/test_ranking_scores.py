"""Scores of single classes against scikit-learn's, and pooled over clients."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from fedivon_app.core.errors import UserError
from fedivon_app.core.metrics import Tally
from fedivon_app.core.ranking_scores import RANKINGS, bin_counts, by_class, overall
from fedivon_app.core.scores import chosen_scores, tally_of, values_of

NAMES = ("auroc", "auprc", "sensitivity_at_90")


def predictions(classes, count=4000, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.choice(classes, count, p=np.arange(1, classes + 1) / sum(range(classes + 1)))
    logits = generator.normal(size=(count, classes)) + 1.5 * np.eye(classes)[labels]
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True), labels


def sensitivity(truth, scores, specificity):
    wrong, found, _ = roc_curve(truth, scores, drop_intermediate=False)
    return np.interp(1 - specificity, wrong, found)


@pytest.mark.parametrize("classes", [2, 4])
def test_every_class_has_the_scores_that_scikit_learn_gives_it(classes):
    probabilities, labels = predictions(classes)
    sums = bin_counts(probabilities, labels)
    for number in range(classes):
        truth = labels == number
        p = probabilities[:, number]
        found = {name: by_class(sums, RANKINGS[name])[number] for name in NAMES}
        assert found["auroc"] == pytest.approx(roc_auc_score(truth, p), abs=2e-3)
        assert found["auprc"] == pytest.approx(average_precision_score(truth, p), abs=5e-3)
        assert found["sensitivity_at_90"] == pytest.approx(sensitivity(truth, p, 0.9), abs=0.02)


def test_scores_over_clients_are_those_of_all_examples():
    probabilities, labels = predictions(3, 300)
    chosen = chosen_scores(NAMES)
    whole = values_of(tally_of(probabilities, labels, chosen), chosen)
    parts = [
        Tally.from_dict(tally_of(probabilities[rows], labels[rows], chosen).to_dict())
        for rows in (slice(10), slice(10, 120), slice(120, 300))
    ]
    assert values_of(sum(parts, Tally()), chosen) == pytest.approx(whole)
    assert list(whole)[-3:] == list(NAMES)


def test_perfect_and_blind_models():
    labels = np.array([0] * 50 + [1] * 50)
    perfect = bin_counts(np.eye(2)[labels], labels)
    blind = bin_counts(np.full((100, 2), 0.5), labels)
    for name in NAMES:
        assert overall(perfect, RANKINGS[name]) == pytest.approx(1)
    assert overall(blind, RANKINGS["auroc"]) == 0.5
    assert overall(blind, RANKINGS["auprc"]) == 0.5
    assert overall(blind, RANKINGS["sensitivity_at_90"]) == pytest.approx(0.1)
    alone = bin_counts(np.full((3, 3), 1 / 3), np.zeros(3, int))
    assert np.isnan(by_class(alone, RANKINGS["auroc"])).all()


def test_of_two_classes_the_second_counts():
    probabilities, labels = predictions(2)
    sums = bin_counts(probabilities, labels)
    one = overall(sums, RANKINGS["auprc"])
    assert one == by_class(sums, RANKINGS["auprc"])[1] != by_class(sums, RANKINGS["auprc"])[0]


def test_they_are_named_in_the_settings_and_are_of_classes():
    with pytest.raises(UserError, match="did you mean auroc"):
        chosen_scores(["aurocc"])
    with pytest.raises(UserError, match="is of classes"):
        chosen_scores(["auroc"], "regression")
