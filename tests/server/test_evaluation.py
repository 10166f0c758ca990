"""The server's own scores: what is scored, how and when."""

import numpy as np
import pytest

from fedivon_app.core.codec import Payload
from fedivon_app.core.metrics import classification
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_mean
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.setup import prepare
from tests.server.helpers import demo


def evaluator_of(settings) -> Evaluator:
    prepared = prepare(settings)
    return Evaluator(settings, prepared.flat, prepared.data.parts)


def test_scores_are_at_the_mean_and_by_monte_carlo_where_there_is_a_precision():
    settings = demo("evaluation.samples=3", "evaluation.final_samples=5", "evaluation.every=10")
    evaluator = evaluator_of(settings)
    flat = evaluator.flat
    sharp = Payload(Posterior(flat.mean(), np.full(len(flat), 1e12)))
    scores = evaluator(10, sharp)["test"]
    assert scores["mc"]["samples"] == 3 and evaluator(100, sharp)["test"]["mc"]["samples"] == 5
    assert scores["mc"]["nll"] == pytest.approx(scores["mean"]["nll"], abs=1e-4)
    test = evaluator.parts["test"]
    assert scores["mean"] == classification(
        predict_mean(flat, sharp.posterior, test.inputs), test.labels.numpy()
    )
    assert set(evaluator(10, Payload(Posterior(flat.mean())))["test"]) == {"mean"}


def test_zero_means_only_the_last_round_is_scored():
    def scored(*overrides: str) -> list[int]:
        settings = demo(*overrides)
        return [r for r in range(1, 101) if settings.is_scored(r)]

    assert scored("evaluation.every=0") == [100]
    assert scored("evaluation.every=0", "evaluation.at=[8,9,10]") == [8, 9, 10, 100]
    assert scored("evaluation.every=10") == list(range(10, 101, 10))


def test_every_part_is_scored_and_the_last_predictions_on_the_test_set_are_kept():
    evaluator = evaluator_of(demo("data.holdout=50", "evaluation.samples=2"))
    flat = evaluator.flat
    payload = Payload(Posterior(flat.mean(), np.full(len(flat), 100.0, np.float32)))
    assert evaluator.moments == {}
    scores = evaluator(1, payload)
    assert set(scores) == {"holdout", "test"}
    labels = evaluator.parts["test"].labels.numpy()
    assert set(evaluator.moments) == set(scores["test"]) == {"mean", "mc"}
    for way, moments in evaluator.moments.items():
        for name, value in classification(moments.mean, labels).items():
            assert scores["test"][way][name] == value
