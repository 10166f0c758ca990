"""Commands on runs whose files were damaged: a line that names the file, and no traceback."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.federation.keys import make_keys
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.server.setup import prepare
from tests.cli.helpers import SCORES, make_run, write_npz

CUT_OFF = b'{"round": 1,'
GARBAGE = b"\xff\xfe\x00\x01"
DAMAGES = {"cut off": CUT_OFF, "a list": b"[1]\n[2]\n", "nothing": b"", "garbage": GARBAGE}
CHECKPOINT = "checkpoint/round-000004"
READ = {  # what a command reads of a run's folder
    "show": ["summary.json"],
    "show --plot {tmp}/a.png": ["settings.yaml", "metrics.jsonl"],
    "report": ["settings.yaml", "summary.json", "metrics.jsonl", "uncertainty.json"],
    "compare": ["settings.yaml", "summary.json", "metrics.jsonl", "uncertainty.json"],
    "uncertainty": ["settings.yaml", "model.json", f"{CHECKPOINT}/order.json"],
    "predict": ["settings.yaml", "model.json", f"{CHECKPOINT}/posterior.safetensors"],
    "personalise --data {tmp}/own.npz": ["settings.yaml", f"{CHECKPOINT}/state.safetensors"],
    "clients": ["settings.yaml", f"{CHECKPOINT}/posterior.safetensors"],
    "resume": ["settings.yaml"],
}
CASES = [
    (command, file, damage)
    for command, files in READ.items()
    for file in files
    for damage in DAMAGES
    if (file, damage) != ("metrics.jsonl", "nothing")  # of a run before its first round
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run's folder with all its files."""
    place = tmp_path_factory.mktemp("whole")
    run = make_run(place, 4, name="run", test={"mean": SCORES})
    flat = prepare(run.settings).flat
    posterior = Posterior(flat.mean(), np.full(len(flat), 50.0, np.float32))
    run.save(Checkpoint(round=4, payload=Payload(posterior), state={"a": np.zeros(2)}))
    run.write("model.json", '{"shape": [8, 8, 1], "num_classes": 10, "class_names": null}')
    run.write("uncertainty.json", "{}")
    (run.folder / "clients").mkdir()
    settings = run.folder / "settings.yaml"
    settings.write_text(settings.read_text().replace("client_state: node", "client_state: run"))
    write_npz(place / "own.npz")
    return run.folder


def complaint(words, capsys) -> str:
    """The one line with which a command refuses."""
    status = main(words)
    shown = capsys.readouterr()
    assert status in (1, 2), shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith("fedivon: ")
    return line


def words_for(command, run, tmp_path):
    name, *options = command.split()
    own = [str(tmp_path / "own.npz")] if name == "predict" else []
    return [name, str(run), *own, *(option.format(tmp=tmp_path) for option in options)]


@pytest.mark.parametrize(("command", "file", "damage"), CASES)
def test_the_damaged_file_is_named(command, file, damage, whole, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.copy(whole.parent / "own.npz", tmp_path)
    lines = (run / file).read_bytes().splitlines(keepends=True)
    damaged = DAMAGES[damage]
    if file == "metrics.jsonl":  # a last line that is cut off is what a crash leaves, and no damage
        damaged = b"".join([lines[0], damaged + b"\n", *lines[1:]])
    (run / file).write_bytes(damaged)
    named = run / file if "checkpoint" not in file else run / CHECKPOINT
    assert str(named) in complaint(words_for(command, run, tmp_path), capsys)


@pytest.mark.parametrize("command", READ)
@pytest.mark.parametrize("place", ["nowhere", "empty", "own.npz"])
def test_a_folder_that_is_no_run_is_named(command, place, whole, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    shutil.copy(whole.parent / "own.npz", tmp_path)
    words = words_for(command, tmp_path / place, tmp_path)
    assert str(tmp_path / place) in complaint(words, capsys)


@pytest.mark.parametrize(
    "words",
    [
        ["keys", "{file}", "--host", "localhost"],
        ["deal", "demo", "--site", "one", "--to", "{file}"],
        ["data", "demo", "--out", "{file}/a.png"],
        ["show", "{run}", "--plot", "{file}/a.png"],
        ["compare", "{run}", "--out", "{file}"],
        ["illustrate", "--out", "{file}"],
        ["predict", "{run}", "{file}"],
        ["settings", "demo", "--set-file", "{file}"],
        ["list", "{file}"],
    ],
)
def test_a_file_in_the_place_of_a_folder_is_named(words, whole, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_bytes(GARBAGE)
    told = complaint([word.format(file=file, run=whole) for word in words], capsys)
    assert str(file) in told and "File exists" not in told and "Not a directory" not in told


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(whole, tmp_path, capsys):
    plot = tmp_path / ("a" * 245 + ".png")  # which is too long a name for the file beside it
    told = complaint(["show", str(whole), "--plot", str(plot)], capsys)
    assert f"{plot}: File name too long" in told and ".partial" not in told


@pytest.mark.parametrize(
    "name", ["authority/ca.crt", "authority/ca.key", "server/server.key", "sites/north/node.key"]
)
def test_a_damaged_key_is_named(name, tmp_path, capsys):
    make_keys(tmp_path, ["localhost"], ["north"])
    (tmp_path / name).write_bytes(GARBAGE)
    words = ["keys", str(tmp_path), "--site", "north", "--host", "localhost"]
    assert str(tmp_path / name) in complaint(words, capsys)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--ood-path", "own.npz"], "add --ood npz"),
        (["--ood", "npz"], "--ood npz needs a file or folder of your own: add --ood-path FILE"),
        (["--ood", "image-folder"], "--ood image-folder needs a file or folder"),
    ],
)
def test_unknown_data_that_are_named_by_half_are_no_data(words, told, whole, capsys):
    assert told in complaint(["uncertainty", str(whole), *words], capsys)


def test_a_run_without_personal_models_says_so(whole, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "clients").rmdir()
    assert "kept no personal models (evaluation.personal" in complaint(
        ["clients", str(run)], capsys
    )


def test_a_reader_who_has_seen_enough_is_no_error(whole):
    program = "import sys\nfrom fedivon_app.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "list", str(whole.parent)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141
