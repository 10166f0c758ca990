"""The server's own half: what it scores, when, and what it shows."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from fedivon_app.core.codec import Payload
from fedivon_app.core.metrics import classification
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_mean
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of
from fedivon_app.report.pages import plot_learning
from fedivon_app.runs.folder import Run
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server_app import _run, main, prepare, progress
from fedivon_app.strategies.roll_call import RunError
from tests.strategies.nodes import Nodes


def demo(*overrides, strategy=None):
    return compose(settings_of, "demo", strategy, overrides)


def test_the_network_of_a_seed_is_always_the_same():
    one, same, other = (prepare(demo(f"seed={seed}"))[0].mean() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_held_out_examples_are_nobodys():
    from fedivon_app.datasets.loading import division

    settings = demo("data.holdout=100")
    split = division(settings.data, 20, 0).split
    parts = prepare(settings)[1].parts
    assert len(parts["holdout"][1]) == 100
    assert not set(split.holdout) & set(np.concatenate(split.train))


def test_scores_are_at_the_mean_and_by_monte_carlo_where_there_is_a_precision():
    settings = demo("evaluation.samples=3", "evaluation.final_samples=5", "evaluation.every=10")
    flat, (*_, parts) = prepare(settings)
    evaluator = Evaluator(settings, flat, parts)
    assert [r for r in range(1, 101) if evaluator.due(r)] == list(range(10, 101, 10))
    sharp = Payload(Posterior(flat.mean(), np.full(len(flat), 1e12)))
    scores = evaluator(10, sharp)["test"]
    assert scores["mc"]["samples"] == 3 and evaluator(100, sharp)["test"]["mc"]["samples"] == 5
    assert scores["mc"]["nll"] == pytest.approx(scores["mean"]["nll"], abs=1e-4)
    inputs, labels = evaluator.parts["test"]
    assert scores["mean"] == classification(
        predict_mean(flat, sharp.posterior, inputs), labels.numpy()
    )
    assert set(evaluator(10, Payload(Posterior(flat.mean())))["test"]) == {"mean"}


def test_zero_means_only_the_last_round_is_scored():
    settings = demo("evaluation.every=0")
    flat, (*_, parts) = prepare(settings)
    assert [r for r in range(1, 101) if Evaluator(settings, flat, parts).due(r)] == [100]
    settings = demo("evaluation.every=0", "evaluation.at=[8,9,10]")
    assert [r for r in range(1, 101) if Evaluator(settings, flat, parts).due(r)] == [8, 9, 10, 100]


def test_a_server_without_data_needs_to_be_told_the_shape():
    with pytest.raises(SettingsError, match="say data.shape and data.num_classes"):
        prepare(demo("data.source=nodes"))
    _, (shape, num_classes, _, parts) = prepare(
        demo("data.source=nodes", "data.shape=[8,8,1]", "data.num_classes=10")
    )
    assert (shape, num_classes, parts) == ((8, 8, 1), 10, {})
    with pytest.raises(SettingsError, match="model: .*lenet"):
        prepare(
            demo(
                "data.source=nodes",
                "data.shape=[60]",
                "data.num_classes=10",
                "model.name=lenet",
                "model.options={}",
            )
        )


SCORES = {"accuracy": 0.5, "nll": 1.25, "ece": 0.125, "brier": 0.6}


def record(server_round: int) -> dict:
    gm = {"test": {"mean": SCORES | {"accuracy": server_round / 20}, "mc": SCORES | {"samples": 4}}}
    return {
        "round": server_round,
        "gm": gm,
        "train_loss": 0.75,
        "dropped": [1],
        "seconds": {"train": 1.0, "evaluate": 0.5},
    }


def test_a_run_that_merged_nothing_has_failed(tmp_path):
    words = [
        "data.clients=2",
        "clients_per_round=2",
        "rounds=2",
        "server.round_timeout=0.05",
        "evaluation.every=0",
    ]
    run = Run.create(demo(*words, f"run.folder={tmp_path}"))
    own = {"shape": [8, 8, 1], "num-classes": 10}
    silent = Nodes(2, lambda partition, message: None, properties={0: own, 1: own})
    with pytest.raises(
        RunError,
        match="in 2 rounds there were never enough good replies to merge: nothing was learned",
    ):
        _run(silent, run, None)
    assert [record["merged"] for record in run.metrics()] == [False, False]


def test_a_failing_run_says_why_in_one_line(tmp_path):
    config = {"experiment": "demo", "runs": str(tmp_path), "set": "data.partition=dirichlett"}
    with pytest.raises(RunError, match="^there is no partition rule 'dirichlett'"):
        main(Nodes(20, lambda partition, message: None), SimpleNamespace(run_config=config))
    (folder,) = tmp_path.iterdir()
    assert (folder / "log.txt").read_text().count("error: there is no partition rule") == 1
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "failed" and summary["detail"].startswith(
        "there is no partition rule"
    )


def test_a_round_is_shown_in_one_line():
    line = progress(record(10), 100)
    expected = "round 10/100  train loss 0.7500  mean: acc 50.00 nll 1.2500 ece 0.1250  mc: acc 50.00 nll 1.2500 ece 0.1250"
    assert line == f"{expected}  dropped 1  1.50 s"


def test_the_learning_curve_is_drawn(tmp_path):
    run = Run.create(demo(f"run.folder={tmp_path}"))
    path = tmp_path / "plots" / "learning.png"
    assert not plot_learning([run], path)
    for server_round in (5, 10, 15):
        run.append(record(server_round))
    assert plot_learning([run, run], path, ["one", "other"])
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.shape[0] > 300 and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
