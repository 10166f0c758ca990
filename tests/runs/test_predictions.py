"""Predictions for files: they are read as the data of a run are, and faults are named."""

import json

import numpy as np
import pytest
from PIL import Image

from fedivon_app.cli.main import main
from fedivon_app.core.errors import DataError
from fedivon_app.datasets.sources import load
from fedivon_app.runs import predictions as module
from fedivon_app.runs.predictions import predictions, read_rows
from fedivon_app.runs.trained_model import Trained
from tests.runs.helpers import make_run

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

TOLD = [
    "broken.png: not a readable",
    "empty: there is no picture",
    "none.npz: it has no array",
    "gone.jpg: there is no",
]


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


def test_pictures_in_files_are_the_pixels_of_the_source(run, pictures):
    folder, pixels = pictures
    trained = Trained.open(run)
    expected = trained.predict(trained.inputs(pixels), 8, run.settings.seed)
    found = list(predictions(trained, [folder], 8))
    assert [one.name for one in found] == [str(folder / f"{number}.png") for number in range(5)]
    for row, one in enumerate(found):
        assert one.error is None
        assert one.said["class"] == one.said["top"] == expected.mean[row].argmax()
        assert one.said["probability"] == pytest.approx(expected.mean[row].max(), abs=1e-6)
        for kind, values in expected.uncertainty().items():
            assert one.said[kind] == pytest.approx(values[row], abs=1e-6)


def test_batches_do_not_change_the_answers(run, pictures, monkeypatch):
    trained = Trained.open(run)
    batches = []
    say = Trained.say

    def counted(self, inputs, *given):
        batches.append(len(inputs))
        return say(self, inputs, *given)

    monkeypatch.setattr(Trained, "say", counted)
    whole = list(predictions(trained, [pictures[0]], 4))
    monkeypatch.setattr(module, "BATCH_BYTES", 500)
    parts = list(predictions(trained, [pictures[0]], 4))
    assert batches == [5, 2, 2, 1]
    for one, other in zip(whole, parts, strict=True):
        assert one.name == other.name and one.said["top"] == other.said["top"]
        assert one.said["probability"] == pytest.approx(other.said["probability"], abs=1e-6)


def test_rows_of_a_table_are_named_by_their_numbers(run, pictures, tmp_path):
    folder, pixels = pictures
    np.savez(tmp_path / "mine.npz", x=pixels)
    trained = Trained.open(run)
    paths = [folder / "0.png", tmp_path / "gone.png", tmp_path / "mine.npz"]
    found = {one.name: one for one in predictions(trained, paths, 4)}
    rows = [f"{tmp_path / 'mine.npz'}[{row}]" for row in range(5)]
    assert set(found) == {str(folder / "0.png"), str(tmp_path / "gone.png"), *rows}
    assert found[rows[0]].said == found[str(folder / "0.png")].said
    lost = found[str(tmp_path / "gone.png")]
    assert isinstance(lost.error, DataError) and lost.said == {}


def test_below_the_confidence_it_abstains(run, pictures):
    trained = Trained.open(run)
    probabilities = [one.said["probability"] for one in predictions(trained, [pictures[0]], 4)]
    limit = sorted(probabilities)[2]
    said = [one.said for one in predictions(trained, [pictures[0]], 4, limit)]
    assert [answer["abstained"] for answer in said] == [p < limit for p in probabilities]
    for answer in said:
        assert answer["class"] == (None if answer["abstained"] else answer["top"])


def test_class_names(tmp_path, pictures):
    numbered = Trained.open(make_run(tmp_path / "a"))
    named = Trained.open(make_run(tmp_path / "b", names=NAMES))
    numbers = predictions(numbered, [pictures[0]], 0)
    for one, other in zip(numbers, predictions(named, [pictures[0]], 0), strict=True):
        assert other.said["class"] == NAMES[one.said["class"]]


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


def test_a_table_for_a_model_of_pictures_is_called_one(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"is a table, but the model takes pictures \(8 x 8 x 1\)"):
        read_rows(tmp_path / "rows.csv", (8, 8, 1))


def test_channels_that_no_picture_has_are_told_with_the_file(tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="a.png: a picture has no 7 channels"):
        read_rows(tmp_path / "a.png", (8, 8, 7))


def test_the_command_predicts_what_it_can_read(run, pictures, tmp_path, capsys):
    (pictures[0] / "broken.png").write_text("no picture")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "none.npz", y=np.ones(3))
    files = [pictures[0], tmp_path / "empty", tmp_path / "none.npz", tmp_path / "gone.jpg"]
    options = ["--samples", "4", "--confidence", "1"]
    assert main(["predict", str(run.folder), *map(str, files), *options]) == 1
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2 + 5 and shown.out.count("abstains") == 5
    lines = shown.err.splitlines()
    assert len(lines) == 4
    for line, says in zip(lines, TOLD, strict=True):
        assert line.startswith("fedivon: ") and says in line


def test_json_lines(run, pictures, capsys):
    words = ["predict", str(run.folder), str(pictures[0] / "0.png"), "--json"]
    assert main([*words, "--samples", "4"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    said = json.loads(line)
    assert said["file"].endswith("0.png") and said["class"] == said["top"]
    assert said["abstained"] is False
    assert 0 < said["probability"] <= 1 and 0 <= said["entropy"] <= 1 and said["aleatoric"] >= 0
    assert main([*words, "--confidence", "1"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["class"] is None and said["abstained"] is True and said["top"] in range(10)


def test_a_folder_without_a_run_is_told(tmp_path, capsys):
    assert main(["predict", str(tmp_path), "x.png"]) == 2
    assert "is not a run folder" in capsys.readouterr().err
