"""Trained models: the classes and probabilities are those that the server scored."""

import json

import numpy as np
import pytest
from PIL import Image

from fedivon_app.cli.main import main
from fedivon_app.core.codec import Payload
from fedivon_app.core.metrics import classification
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.compose import compose
from fedivon_app.datasets.sources import DataError, load
from fedivon_app.methods import settings_of
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained, predictions, read_rows
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.setup import prepare

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

TOLD = [
    "broken.png: not a readable",
    "empty: there is no picture",
    "none.npz: it has no array",
    "gone.jpg: there is no",
]


def make_run(folder, *overrides, names=None, model=True, checkpoint=True):
    """A run of the demo whose posterior is a wide one around the network's first weights, made ten times as large."""
    settings = compose(settings_of, "demo", None, [f"run.folder={folder}", *overrides])
    run = Run.create(settings)
    flat, (shape, num_classes, *_) = prepare(settings)
    if model:
        run.write(
            "model.json",
            json.dumps({"shape": shape, "num_classes": num_classes, "class_names": names}),
        )
    if checkpoint:
        mean = 5 * flat.mean()
        run.save(
            3, Payload(Posterior(mean, np.full(len(flat), 100.0, np.float32)), flat.buffers), {}
        )
        run.save_best(
            2,
            Payload(Posterior(-mean, np.full(len(flat), 100.0, np.float32)), flat.buffers),
            {},
            0.5,
        )
    return run


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "runs")


@pytest.fixture
def pictures(tmp_path):
    """Five test digits, each as a file; and their pixels."""
    folder = tmp_path / "pictures"
    pixels = load("digits").x_test[:5]
    folder.mkdir()
    for number, picture in enumerate(pixels):
        Image.fromarray(picture).save(folder / f"{number}.png")
    return folder, pixels


@pytest.mark.parametrize("samples", [0, 6])
def test_predictions_are_those_that_the_server_scores(tmp_path, samples):
    run = make_run(tmp_path, f"evaluation.samples={samples}")
    flat, (*_, parts) = prepare(run.settings)
    x, y = parts["test"]
    trained = Trained.open(run.folder)
    scored = Evaluator(run.settings, flat, parts)(1, trained.payload)["test"][
        "mc" if samples else "mean"
    ]
    moments = trained.predict(trained.inputs(x), samples, run.settings.seed)
    for measure, value in classification(moments.mean.astype(np.float32), y).items():
        assert value == pytest.approx(scored[measure], abs=1e-6)
    assert (moments.uncertainty()["epistemic"].max() > 1e-3) == bool(samples)


def test_pictures_in_files_are_the_pixels_of_the_source(run, pictures):
    folder, pixels = pictures
    trained = Trained.open(run)
    expected = trained.predict(trained.inputs(pixels), 8, run.settings.seed)
    said = dict(predictions(trained, [folder], 8))
    assert list(said) == [str(folder / f"{number}.png") for number in range(5)]
    for row, answer in enumerate(said.values()):
        assert answer["class"] == answer["top"] == expected.mean[row].argmax()
        assert answer["probability"] == pytest.approx(expected.mean[row].max(), abs=1e-6)
        for kind, values in expected.uncertainty().items():
            assert answer[kind] == pytest.approx(values[row], abs=1e-6)


def test_batches_do_not_change_the_answers(run, pictures, monkeypatch):
    trained = Trained.open(run)
    whole = list(predictions(trained, [pictures[0]], 4))
    monkeypatch.setattr("fedivon_app.runs.trained_model.BATCH_BYTES", 500)
    for (name, one), (same, other) in zip(
        whole, predictions(trained, [pictures[0]], 4), strict=True
    ):
        assert name == same and one["top"] == other["top"]
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-6)


def test_the_model_is_known_without_a_model_file(tmp_path, run):
    older = Trained.open(make_run(tmp_path / "older", model=False))
    newer = Trained.open(run)
    assert older.shape == newer.shape == (8, 8, 1) and older.num_classes == newer.num_classes == 10
    x = newer.inputs(load("digits").x_test[:3])
    np.testing.assert_array_equal(older.predict(x, 0, 0).mean, newer.predict(x, 0, 0).mean)


def test_last_and_best_checkpoint(run):
    last = Trained.open(run)
    best = Trained.open(run, "best")
    np.testing.assert_array_equal(last.payload.posterior.mean, -best.payload.posterior.mean)


def test_below_the_confidence_it_abstains(run, pictures):
    trained = Trained.open(run)
    probabilities = [said["probability"] for _, said in predictions(trained, [pictures[0]], 4)]
    limit = sorted(probabilities)[2]
    said = [answer for _, answer in predictions(trained, [pictures[0]], 4, limit)]
    assert [answer["abstained"] for answer in said] == [p < limit for p in probabilities]
    for answer in said:
        assert answer["class"] == (None if answer["abstained"] else answer["top"])


def test_class_names(tmp_path, pictures):
    numbered = Trained.open(make_run(tmp_path / "a"))
    named = Trained.open(make_run(tmp_path / "b", names=NAMES))
    for (_, one), (_, other) in zip(
        *(predictions(t, [pictures[0]], 0) for t in (numbered, named)), strict=True
    ):
        assert other["class"] == NAMES[one["class"]]


def test_pictures_are_converted_and_resized(tmp_path):
    flat = np.full((40, 30, 3), (200, 200, 200), np.uint8)
    Image.fromarray(flat).save(tmp_path / "grey.bmp")
    rows = read_rows(tmp_path / "grey.bmp", (8, 6, 1))
    assert rows.shape == (1, 8, 6, 1) and rows.dtype == np.uint8 and (rows == 200).all()
    Image.fromarray(flat[..., 0]).save(tmp_path / "colour.png")
    assert read_rows(tmp_path / "colour.png", (8, 6, 3)).shape == (1, 8, 6, 3)


@pytest.mark.parametrize("key", ["x", "x_test"])
def test_rows_of_an_npz_file(tmp_path, key):
    x = load("digits").x_test[:4]
    np.savez(tmp_path / "mine.npz", **{key: x})
    np.testing.assert_array_equal(read_rows(tmp_path / "mine.npz", (8, 8, 1)).reshape(x.shape), x)


def test_tables_come_as_npz_only(tmp_path):
    np.savez(tmp_path / "table.npz", x=np.ones((3, 60)))
    assert read_rows(tmp_path / "table.npz", (60,)).shape == (3, 60)
    with pytest.raises(DataError, match="takes 20"):
        read_rows(tmp_path / "table.npz", (20,))
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="takes tables of 60 numbers"):
        read_rows(tmp_path / "a.png", (60,))


def test_without_a_checkpoint_the_folder_is_named(tmp_path):
    run = make_run(tmp_path, checkpoint=False)
    with pytest.raises(SettingsError, match=f"{run.folder.name} has no checkpoint"):
        Trained.open(run)
    with pytest.raises(SettingsError, match=f"{run.folder.name} has no best checkpoint"):
        Trained.open(run, "best")


def test_a_damaged_checkpoint_is_named(run):
    (run.checkpoints()[-1][1] / "posterior.safetensors").write_bytes(b"no")
    with pytest.raises(SettingsError, match="round-000003 is no readable checkpoint"):
        Trained.open(run)


def test_another_model_than_the_checkpoints_is_told(run):
    values = json.loads((run.folder / "model.json").read_text())
    run.write("model.json", json.dumps(values | {"num_classes": 11}))
    with pytest.raises(SettingsError, match="weights, but its model has"):
        Trained.open(run)


def test_the_command_predicts_what_it_can_read(run, pictures, tmp_path, capsys):
    (pictures[0] / "broken.png").write_text("no picture")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "none.npz", y=np.ones(3))
    files = [pictures[0], tmp_path / "empty", tmp_path / "none.npz", tmp_path / "gone.jpg"]
    assert (
        main(["predict", str(run.folder), *map(str, files), "--samples", "4", "--confidence", "1"])
        == 1
    )
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2 + 5 and shown.out.count("abstains") == 5
    lines = shown.err.splitlines()
    assert len(lines) == 4
    for line, says in zip(lines, TOLD, strict=True):
        assert line.startswith("fedivon: ") and says in line


def test_json_lines(run, pictures, capsys):
    assert (
        main(["predict", str(run.folder), str(pictures[0] / "0.png"), "--json", "--samples", "4"])
        == 0
    )
    (line,) = capsys.readouterr().out.splitlines()
    said = json.loads(line)
    assert (
        said["file"].endswith("0.png")
        and said["class"] == said["top"]
        and said["abstained"] is False
    )
    assert 0 < said["probability"] <= 1 and 0 <= said["entropy"] <= 1 and said["aleatoric"] >= 0
    assert (
        main(
            ["predict", str(run.folder), str(pictures[0] / "0.png"), "--json", "--confidence", "1"]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert said["class"] is None and said["abstained"] is True and said["top"] in range(10)


def test_a_folder_without_a_run_is_told(tmp_path, capsys):
    assert main(["predict", str(tmp_path), "x.png"]) == 2
    assert "is no run folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["{", '{"shape": [8, 8, 1]}', '{"shape": [8], "num_classes": "x", "class_names": null}']
)
def test_a_damaged_model_file_is_told(run, text):
    run.write("model.json", text)
    with pytest.raises(SettingsError, match=f"{run.folder.name}: its model cannot be made again"):
        Trained.open(run)


def test_a_checkpoint_that_is_not_finite_is_told(run):
    posterior = Trained.open(run).payload.posterior
    run.save(4, Payload(Posterior(np.full_like(posterior.mean, np.nan), posterior.precision)), {})
    with pytest.raises(SettingsError, match="its checkpoint is of no use: mean"):
        Trained.open(run)


def test_channels_that_no_picture_has_are_told_with_the_file(tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="a.png: a picture has no 7 channels"):
        read_rows(tmp_path / "a.png", (8, 8, 7))
