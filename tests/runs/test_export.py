"""Exported models say what the model says, by programs that know nothing of this project."""

import io
import json

import numpy as np
import pytest
import torch
from safetensors import safe_open

from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import RunError, SettingsError
from fedivon_app.core.likelihood import likelihood_of
from fedivon_app.core.network import new_network
from fedivon_app.core.posterior import Posterior
from fedivon_app.datasets.sources import load
from fedivon_app.methods import settings_of
from fedivon_app.runs import export as exporting
from fedivon_app.runs.export import export
from fedivon_app.runs.graph import ensemble
from fedivon_app.runs.trained_model import Trained

OPTIONS = {"resnet": ["model.options.blocks=1"]}  # a small one


def trained_model(name="mlp", shape=(8, 8, 1), *, precision=True, sets=(), seed=0) -> Trained:
    """A model with random weights, wide enough for its samples to differ."""
    torch.manual_seed(seed)
    settings = compose(
        settings_of, "demo", "fedivon", [f"model.name={name}", *OPTIONS.get(name, ()), *sets]
    )
    outputs = likelihood_of(settings).num_outputs(10)
    flat = new_network(settings.model, shape, outputs, torch.device("cpu"))
    mean = flat.mean()
    buffers = flat.buffers
    if buffers is not None:
        buffers = np.random.default_rng(0).uniform(0.5, 1.5, buffers.shape).astype(np.float32)
    spread = np.full_like(mean, 100.0) if precision else None
    return Trained(settings, flat, Payload(Posterior(mean, spread), buffers), 3, shape, 10)


def by_onnxruntime(path, x):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    facts = session.get_modelmeta().custom_metadata_map
    return dict(zip(names, session.run(None, {"x": x}), strict=True)), facts


@pytest.mark.parametrize(
    ("name", "shape"), [("mlp", (8, 8, 1)), ("lenet", (28, 28, 1)), ("resnet", (8, 8, 3))]
)
def test_onnx_says_what_the_model_says(tmp_path, name, shape):
    pytest.importorskip("onnxruntime")
    trained = trained_model(name, shape)
    done = export(trained, "onnx", tmp_path / "a.onnx", samples=3)
    x = np.random.default_rng(1).random((5, shape[2], *shape[:2]), np.float32)
    said, facts = by_onnxruntime(done.path, x)
    expected = trained.predict(torch.tensor(x), 3, trained.settings.seed)
    np.testing.assert_allclose(said["probabilities"], expected.mean, atol=2e-6)
    epistemic = expected.uncertainty()["epistemic"]
    np.testing.assert_allclose(said["epistemic"], epistemic, atol=2e-6)
    assert epistemic.min() > 1e-5  # or the comparison would show nothing
    assert facts["samples"] == "3" and json.loads(facts["shape"]) == list(shape)


def test_a_graph_that_takes_bytes_scales_them_as_in_training(tmp_path):
    pytest.importorskip("onnxruntime")
    pictures = load("digits").x_test[:6].reshape(6, 8, 8, 1)
    assert pictures.dtype == np.uint8
    for scaling in ("raw", "unit", "signed"):
        trained = trained_model(sets=[f"data.scaling={scaling}"])
        expected = trained.predict(trained.inputs(pictures), 0, 0).mean
        said = ensemble(trained, bytes_in=True)(torch.tensor(pictures))
        np.testing.assert_allclose(said, expected, atol=2e-6)
    done = export(trained, "onnx", tmp_path / "b.onnx", bytes_in=True)
    outputs, facts = by_onnxruntime(done.path, pictures)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=2e-6)
    assert list(outputs) == ["probabilities"] and facts["input"].startswith("bytes")


def test_a_graph_that_takes_bytes_standardises_them_by_channel(tmp_path):
    pictures = load("digits").x_test[:6].reshape(6, 8, 8, 1)
    trained = trained_model(sets=["data.standard={mean: [0.3], deviation: [0.35]}"])
    inputs = trained.inputs(pictures)
    expected = trained.predict(inputs, 0, 0).mean
    assert np.abs(expected - trained_model().predict(inputs * 0, 0, 0).mean).max() > 1e-3
    np.testing.assert_allclose(
        ensemble(trained, bytes_in=True)(torch.tensor(pictures)), expected, atol=2e-6
    )
    np.testing.assert_allclose(ensemble(trained)(inputs), expected, atol=2e-6)
    pytest.importorskip("onnxruntime")
    done = export(trained, "onnx", tmp_path / "c.onnx", bytes_in=True)
    outputs, _ = by_onnxruntime(done.path, pictures)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=2e-6)


def test_a_graph_that_takes_rows_standardises_them_as_in_training(tmp_path):
    standard = "data.standard={mean: [5.0, 0.0, -1.0], deviation: [2.0, 1.0, 100.0]}"
    trained = trained_model(shape=(3,), sets=[standard])
    rows = np.array([[5.0, 0.5, 99.0], [1.0, np.nan, -1.0]], np.float32)
    expected = trained.predict(trained.inputs(rows), 0, 0).mean
    np.testing.assert_allclose(ensemble(trained)(torch.tensor(rows)), expected, atol=2e-6)
    pytest.importorskip("onnxruntime")
    done = export(trained, "onnx", tmp_path / "rows.onnx", samples=2)
    outputs, _ = by_onnxruntime(done.path, rows)
    sampled = trained.predict(trained.inputs(rows), 2, trained.settings.seed).mean
    np.testing.assert_allclose(outputs["probabilities"], sampled, atol=2e-6)


NUMBERS = ("value", "deviation", "aleatoric", "epistemic")
FAR = "target_mean: 1.0e+6, target_deviation: 20.0"  # 32 bits would lose a three-hundredth of it


def model_of_numbers(standard=f"mean: [5.0, 0.0, -1.0], deviation: [2.0, 1.0, 100.0], {FAR}"):
    sets = ["task=regression", f"data.standard={{{standard}}}"]
    return trained_model(shape=(3,), sets=sets)


@pytest.mark.parametrize(("form", "samples"), [("onnx", 0), ("onnx", 3), ("torch", 3)])
def test_a_model_of_numbers_gives_their_mean_and_their_deviation(form, samples, tmp_path):
    trained = model_of_numbers()
    rows = np.array([[5.0, 0.5, 99.0], [1.0, np.nan, -1.0]], np.float32)
    if form == "onnx":
        pytest.importorskip("onnxruntime")
    done = export(trained, form, tmp_path / "numbers", samples)
    if form == "onnx":
        said, facts = by_onnxruntime(done.path, rows)
        assert facts["task"] == "regression" and "class_names" not in facts
    else:
        outputs = torch.export.load(io.BytesIO(done.path.read_bytes())).module()(torch.tensor(rows))
        said = dict(zip(NUMBERS, map(np.asarray, outputs), strict=False))
    assert list(said) == list(NUMBERS if samples else NUMBERS[:2])
    moments = trained.predict(trained.inputs(rows), samples, trained.settings.seed)
    parts = moments.uncertainty() | {"value": moments.scored[:, 0]}
    for name, found in said.items():
        np.testing.assert_allclose(found, parts[name], rtol=1e-5, atol=1e-3, err_msg=name)
    assert np.abs(said["value"] - parts["value"]).max() < 1e-3
    if samples:
        together = said["aleatoric"] + said["epistemic"]
        np.testing.assert_allclose(said["deviation"] ** 2, together)
        assert said["epistemic"].min() > 1e-3


def test_tensors_of_a_model_of_numbers_come_with_the_unit_of_the_numbers(tmp_path):
    trained = model_of_numbers()
    done = export(trained, "safetensors", tmp_path / "a.safetensors", samples=2)
    with safe_open(done.path, "pt") as file:
        known = json.loads(file.metadata()["standard"])
        assert file.get_tensor("sample1.head.weight").shape[0] == 2  # the mean and the noise
    assert (known["target_mean"], known["target_deviation"]) == (1e6, 20.0)
    assert known["mean"] == [5.0, 0.0, -1.0]


def test_the_samples_of_a_graph_are_mirrored_where_those_of_the_model_are():
    trained = trained_model(sets=["evaluation.antithetic=true"])
    x = torch.rand(5, 1, 8, 8)
    said, *_ = ensemble(trained, 4)(x)
    np.testing.assert_allclose(said, trained.predict(x, 4, trained.settings.seed).mean, atol=2e-6)
    usual, *_ = ensemble(trained_model(), 4)(x)
    assert np.abs(said - usual).max() > 1e-3


def test_tensors_keep_their_names_in_every_format(tmp_path):
    onnx = pytest.importorskip("onnx")
    trained = trained_model("resnet", (8, 8, 3))
    wanted = set(trained.flat.slices)
    graph = onnx.load(export(trained, "onnx", tmp_path / "a.onnx", samples=2).path).graph
    # a convolution whose output is normalised at once may be folded with that
    found = {one.name for one in graph.initializer}
    assert {f"sample{s}.head.weight" for s in (0, 1)} <= found
    content = export(trained, "torch", tmp_path / "a.pt2").path.read_bytes()
    program = torch.export.load(io.BytesIO(content))
    assert {f"mean.{name}" for name in wanted} <= set(program.state_dict)
    with safe_open(
        export(trained, "safetensors", tmp_path / "a.safetensors", samples=2).path, "pt"
    ) as file:
        names = set(file.keys())
        weight = file.get_tensor("mean.head.weight")
        facts = file.metadata()
    for kind in ("mean", "precision", "sample0", "sample1"):
        assert {f"{kind}.{name}" for name in wanted} <= names
    assert any(name.startswith("buffer.") for name in names)
    place = trained.flat.slices["head.weight"]
    np.testing.assert_array_equal(weight.numpy().ravel(), trained.payload.posterior.mean[place])
    assert facts["strategy"] == "fedivon" and facts["round"] == "3"


def test_torch_runs_the_file_without_this_project(tmp_path):
    trained = trained_model("lenet", (28, 28, 1))
    done = export(trained, "torch", tmp_path / "a.pt2", samples=4)
    x = torch.rand(9, 1, 28, 28)
    probabilities, epistemic = torch.export.load(done.path).module()(x)
    expected = trained.predict(x, 4, trained.settings.seed)
    np.testing.assert_allclose(probabilities, expected.mean, atol=2e-6)
    np.testing.assert_allclose(epistemic, expected.uncertainty()["epistemic"], atol=2e-6)


def test_what_cannot_be_exported_is_told(tmp_path):
    path = tmp_path / "a.pt2"
    point = trained_model(precision=False)
    with pytest.raises(SettingsError, match="at its mean only: fedivon learns a point"):
        export(point, "torch", path, samples=4)
    masks = trained_model(precision=False, sets=["model.dropout=0.2"])
    with pytest.raises(SettingsError, match="masks of dropout"):
        export(masks, "torch", path, samples=4)
    with pytest.raises(SettingsError, match="one sample says nothing"):
        export(trained_model(), "torch", path, samples=1)
    with pytest.raises(SettingsError, match="only pictures can be given as bytes"):
        export(trained_model(shape=(12,)), "torch", path, bytes_in=True)
    assert not path.exists()


def test_onnx_without_its_packages_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"onnxruntime: install them with .*fedivon\[export\]"):
        export(trained_model(), "onnx", tmp_path / "a.onnx")


def test_a_file_that_says_something_else_is_not_kept(tmp_path, monkeypatch):
    right = exporting.ensemble
    other = trained_model(seed=1)
    monkeypatch.setattr(exporting, "ensemble", lambda trained, *given, **named: right(other))
    with pytest.raises(RunError, match="was not written: what it says differs"):
        export(trained_model(), "torch", tmp_path / "a.pt2")
    assert not any(tmp_path.iterdir())
