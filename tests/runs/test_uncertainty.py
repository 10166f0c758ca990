"""How sure a finished run's model is: what is written, and that it is what the metrics say."""

import json

import numpy as np
import pytest
import torch

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.metrics import auroc, classification, uncertainty
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_samples
from fedivon_app.datasets.loading import tensors
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.datasets.resize import fit
from fedivon_app.datasets.sources import load
from fedivon_app.methods import method, settings_of
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained
from fedivon_app.runs.uncertainty import assess
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.setup import Examples, prepare


def finished(folder, strategy="fedivon", *overrides) -> Run:
    """A run on the digits whose model has seen a little of them, all by one client."""
    words = [
        "data.clients=1",
        "clients_per_round=1",
        "data.partition=iid",
        "evaluation.final_samples=6",
        "client.epochs=2",
        *overrides,
    ]
    settings = compose(settings_of, "demo", strategy, [*words, f"run.folder={folder}"])
    prepared = prepare(settings)
    kind = method(strategy)
    payload = kind.strategy(settings, prepared.architecture).begin(prepared.flat.mean())
    client = kind.client(settings, partition_of(settings, {"partition-id": 0, "num-partitions": 1}))
    told = Instructions(round=1, learning_rate=settings.client.learning_rate)
    trained = client.work(payload, told).payload
    run = Run.create(settings)
    run.save(Checkpoint(7, trained, {}))
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """Noise in colour and of another size, as a file."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "noise.npz"
    pictures = rng.integers(0, 256, (40, 12, 10, 3), np.uint8)
    labels = np.arange(40) % 2
    np.savez(path, x_train=pictures, y_train=labels, x_test=pictures, y_test=labels)
    return path


def samples_of(run, pixels):
    trained = Trained.open(run)
    inputs = trained.inputs(pixels)
    return predict_samples(trained.flat, trained.payload.posterior, inputs, 6, run.settings.seed)


def test_the_numbers_are_those_of_the_metrics(run):
    result = assess(run)
    source = load("digits")
    drawn = samples_of(run, source.x_test)
    mc = result["ways"]["mc"]
    assert (result["round"], mc["samples"], result["num_examples"]) == (7, 6, len(source.y_test))
    assert mc["scores"] == pytest.approx(classification(drawn.mean(0), source.y_test), rel=1e-5)
    assert mc["retention"]["entropy"][-1] == pytest.approx(mc["scores"]["accuracy"])
    # The more certain half is more often right.
    assert mc["retention"]["entropy"][9] > mc["scores"]["accuracy"]
    assert sum(mc["reliability"]["count"]) == len(source.y_test)
    assert set(mc["retention"]) == {"fractions", "entropy", "aleatoric", "epistemic"}
    assert set(result["ways"]["mean"]["retention"]) == {"fractions", "entropy", "aleatoric"}
    parts = uncertainty(drawn)
    for name, histogram in mc["histograms"].items():
        assert sum(histogram["in"]) == pytest.approx(1) and "out" not in histogram
        assert histogram["edges"][-1] == pytest.approx(parts[name].max(), rel=1e-4)
    assert "ood" not in mc
    assert json.loads((run.folder / "uncertainty.json").read_text()) == result


def test_unknown_data_are_told_from_known_ones(run, strange):
    result = assess(run, ood="npz", ood_path=str(strange))
    found = result["ways"]["mc"]["ood"]
    source = load("digits")
    assert (found["source"], found["num_in"], found["num_out"]) == ("npz", len(source.y_test), 40)
    far = uncertainty(samples_of(run, fit("noise", np.load(strange)["x_test"], (8, 8, 1))))
    near = uncertainty(samples_of(run, source.x_test))
    for name, area in found["auroc"].items():
        assert area == pytest.approx(auroc(near[name], far[name]), abs=1e-3)
    assert found["auroc"]["entropy"] > 0.6
    certain = samples_of(run, source.x_test).mean(0).max(1) >= 0.9
    assert found["sure"]["in"] == pytest.approx(certain.mean(), abs=0.01)
    assert found["sure"]["out"] < found["sure"]["in"]
    histogram = result["ways"]["mean"]["histograms"]["entropy"]
    assert sum(histogram["in"]) == pytest.approx(1) and sum(histogram["out"]) == pytest.approx(1)


def test_as_many_known_examples_are_compared_as_the_settings_say(tmp_path, strange):
    run = finished(
        tmp_path,
        "fedivon",
        "evaluation.ood=npz",
        f"evaluation.ood_path={strange}",
        "evaluation.ood_size=25",
    )
    found = assess(run)["ways"]["mean"]["ood"]
    assert (found["num_in"], found["num_out"]) == (25, 25)


def test_predictions_that_are_there_already_are_not_made_again(run):
    settings = run.settings
    trained = Trained.open(run)
    source = load("digits")
    test = Examples(source.x_test, source.y_test)
    evaluator = Evaluator(settings, trained.flat, {"test": test})
    evaluator(settings.rounds, trained.payload)
    assert assess(run, predicted=evaluator.moments) == assess(run)
    flipped = {way: type(m)(m.mean[::-1], m.second[::-1]) for way, m in evaluator.moments.items()}
    assert assess(run, predicted=flipped)["ways"]["mc"]["scores"]["accuracy"] < 0.5


def test_a_point_has_one_way_and_dropout_has_two(tmp_path):
    assert set(assess(finished(tmp_path, "fedavg"))["ways"]) == {"mean"}
    ways = assess(finished(tmp_path, "mc-dropout"))["ways"]
    assert set(ways) == {"mean", "mc"} and max(ways["mc"]["histograms"]["epistemic"]["edges"]) > 0


def test_what_cannot_be_judged_is_named(tmp_path, run):
    with pytest.raises(DataError, match="the very data that the model was trained for"):
        assess(run, ood="digits")
    with pytest.raises(SettingsError, match="there is no data source 'mnnist'"):
        assess(run, ood="mnnist")
    with pytest.raises(DataError, match=r"the ood source synthetic: its inputs are 60 \(float32\)"):
        assess(run, ood="synthetic")
    words = [
        "data.source=nodes",
        "data.shape=[8,8,1]",
        "data.num_classes=10",
        f"run.folder={tmp_path}",
    ]
    without = Run.create(compose(settings_of, "demo", "fedivon", words))
    with pytest.raises(SettingsError, match="has no test set"):
        assess(without)


def test_pictures_are_resized_and_their_channels_matched():
    rows = np.full((2, 6, 4, 3), (255, 0, 0), np.uint8)
    assert fit("here", rows, (6, 4, 3)) is rows
    grey = fit("here", rows, (8, 8, 1))
    assert grey.shape == (2, 8, 8, 1) and np.unique(grey).tolist() == [76]  # the luminance of red
    colour = fit("here", np.full((2, 6, 4), 9, np.uint8), (3, 3, 3))
    assert colour.shape == (2, 3, 3, 3) and (colour == 9).all()
    with pytest.raises(DataError, match="here: its inputs are 5"):
        fit("here", np.zeros((2, 5), np.float32), (8, 8, 1))


def test_the_same_device_form_as_in_training(run):
    """`Trained.inputs` scales pixels as the clients do."""
    source = load("digits")
    expected, _ = tensors(
        source.x_test[:3], source.y_test[:3], run.settings.data.scaling, torch.device("cpu")
    )
    np.testing.assert_array_equal(Trained.open(run).inputs(source.x_test[:3]), expected)


def test_posteriors_of_any_kind_are_judged(tmp_path):
    assert isinstance(Trained.open(finished(tmp_path, "flipout")).payload.posterior, Posterior)
    assert set(assess(finished(tmp_path, "flipout"))["ways"]) == {"mean", "mc"}
