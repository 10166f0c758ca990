"""Trained models: the classes and probabilities are those that the server scored."""

import json

import numpy as np
import pytest

from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.metrics import classification
from fedivon_app.core.posterior import Posterior
from fedivon_app.datasets.sources import load
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.trained_model import Trained
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.setup import prepare
from tests.runs.helpers import make_run


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "runs")


@pytest.mark.parametrize("samples", [0, 6])
def test_predictions_are_those_that_the_server_scores(tmp_path, samples):
    run = make_run(tmp_path, f"evaluation.samples={samples}")
    prepared = prepare(run.settings)
    parts = prepared.data.parts
    test = parts["test"]
    trained = Trained.open(run.folder)
    evaluator = Evaluator(run.settings, prepared.flat, parts)
    scored = evaluator(1, trained.payload)["test"]["mc" if samples else "mean"]
    moments = trained.predict(trained.inputs(test.x), samples, run.settings.seed)
    for measure, value in classification(moments.mean.astype(np.float32), test.y).items():
        assert value == pytest.approx(scored[measure], abs=1e-6)
    assert (moments.uncertainty()["epistemic"].max() > 1e-3) == bool(samples)


def test_the_model_is_known_without_a_model_file(tmp_path, run):
    older = Trained.open(make_run(tmp_path / "older", model=False))
    newer = Trained.open(run)
    assert older.shape == newer.shape == (8, 8, 1) and older.num_classes == newer.num_classes == 10
    x = newer.inputs(load("digits").x_test[:3])
    np.testing.assert_array_equal(older.predict(x, 0, 0).mean, newer.predict(x, 0, 0).mean)


def test_last_and_best_checkpoint(run):
    last = Trained.open(run)
    best = Trained.open(run, "best")
    assert (last.round, best.round) == (3, 2)
    np.testing.assert_array_equal(last.payload.posterior.mean, -best.payload.posterior.mean)


def test_without_a_checkpoint_the_folder_is_named(tmp_path):
    run = make_run(tmp_path, checkpoint=False)
    with pytest.raises(SettingsError, match=f"{run.folder.name} has no checkpoint"):
        Trained.open(run)
    with pytest.raises(SettingsError, match=f"{run.folder.name} has no best checkpoint"):
        Trained.open(run, "best")


def test_a_damaged_checkpoint_is_named(run):
    (run.checkpoints()[-1].path / "posterior.safetensors").write_bytes(b"no")
    with pytest.raises(SettingsError, match="round-000003 is not a readable checkpoint"):
        Trained.open(run)


def test_another_model_than_the_checkpoints_is_told(run):
    values = json.loads((run.folder / "model.json").read_text())
    run.write("model.json", json.dumps(values | {"num_classes": 11}))
    with pytest.raises(SettingsError, match="weights, but its model has"):
        Trained.open(run)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "/model.json is not valid JSON"),
        ('{"shape": [8, 8, 1]}', "/model.json is damaged: it has no 'class_names'"),
        ('{"shape": [8], "num_classes": "x", "class_names": null}', ": its model cannot be made"),
    ],
)
def test_a_damaged_model_file_is_told(run, text, says):
    run.write("model.json", text)
    with pytest.raises(SettingsError, match=f"{run.folder.name}{says}"):
        Trained.open(run)


def test_a_checkpoint_that_is_not_finite_is_told(run):
    posterior = Trained.open(run).payload.posterior
    lost = Payload(Posterior(np.full_like(posterior.mean, np.nan), posterior.precision))
    run.save(Checkpoint(4, lost, {}))
    with pytest.raises(SettingsError, match="its checkpoint is of no use: mean"):
        Trained.open(run)
