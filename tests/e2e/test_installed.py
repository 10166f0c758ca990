"""FedIvon from its wheel, beside Hugging Face's `datasets` and a package of the user's own.

Nothing is taken from the checkout: the environment is a new one, with the packages that FedIvon
needs from the tests' own, and every command is given from another folder.
"""

import csv
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedivon_app.cli.commands import COMMANDS
from tests.e2e.helpers import PROJECT

pytestmark = pytest.mark.e2e

HUGGING_FACE = "datasets==5.2.0"
SOURCE = '''
"""A data source of the user's own, by Hugging Face's `datasets`."""

import datasets
import numpy as np


def load(*, path, label, every=5):
    table = datasets.Dataset.from_csv(str(path)).with_format("numpy")
    names = [name for name in table.column_names if name != label]
    x = np.stack([table[name] for name in names], axis=1).astype(np.float32)
    y = np.asarray(table[label])
    test = np.arange(len(y)) % every == 0
    return {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}
'''


def pip(*words: str | Path) -> None:
    quietly = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *quietly, *map(str, words)], check=True)


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The interpreter of an environment with the wheels of FedIvon and of the example package."""
    place = tmp_path_factory.mktemp("installed")
    wheels = place / "wheels"
    pip("wheel", "--no-deps", "--wheel-dir", wheels, PROJECT, PROJECT / "examples" / "own-method")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    python = place / "venv" / "bin" / "python"
    site = next((place / "venv").rglob("site-packages"))
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    into = ("--python", python, "install")
    pip(*into, "--no-deps", "--ignore-installed", "flwr==1.41.0", *wheels.glob("*.whl"))
    pip(*into, HUGGING_FACE)
    (site / "hugging_face_source.py").write_text(SOURCE)
    return python


@pytest.fixture(scope="module", autouse=True)
def nothing_else_on_the_path():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder that is no checkout, with a table of the digits."""
    place = tmp_path_factory.mktemp("elsewhere")
    digits = load_digits()
    with open(place / "table.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"pixel{i}" for i in range(64)), "digit"])
        for pixels, digit in zip(digits.data / 16, digits.target, strict=True):
            writer.writerow([*pixels.tolist(), digit])
    return place


def fedivon(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess:
    """A command, as a person gives it in that folder."""
    command = [python.with_name("fedivon"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


TABLE = ["dataset=null", "data.path={folder}/table.csv", "data.options.label=digit"]
SHORT = ["data.clients=3", "clients_per_round=3", "data.partition=iid", "rounds=3"]
OWN = ["evaluation.scores=[own_method.scores:MARGIN]", "evaluation.clients_every=3"]


@pytest.fixture(scope="module")
def run(python, folder) -> Path:
    """A run of the own method with the own rule, source and score."""
    source = [word.format(folder=folder) for word in TABLE]
    words = [*source, "data.source=own_method.data:load", *SHORT, *OWN]
    method = "own_method.method:METHOD"
    done = fedivon(python, folder, "run", "demo", "--strategy", method, "--set", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Margin" in done.stdout
    (made,) = (folder / "runs").iterdir()
    return made


def test_both_packages_called_datasets_are_there(python, folder):
    code = (
        "import datasets, fedivon_app.datasets.sources as own, fedivon_app;"
        "print(datasets.__version__, own.__file__.startswith(fedivon_app.__path__[0]))"
    )
    said = subprocess.run(
        [python, "-W", "ignore", "-c", code], cwd=folder, capture_output=True, text=True
    )
    assert said.stdout.split() == [HUGGING_FACE.partition("==")[2], "True"], said.stderr


def test_a_method_a_rule_a_source_and_a_score_of_ones_own_run_from_the_wheel(run):
    summary = json.loads((run / "summary.json").read_text())
    scores = summary["final"]["test"]["mean"]
    assert summary["status"] == "completed" and scores["accuracy"] > 0.6
    assert 0 < scores["margin"] < 1
    pooled = summary["final"]["clients_before_training"]["mean"]["margin"]
    assert np.isfinite(pooled)
    assert "Margin" in (run / "report.html").read_text()


def test_a_source_of_ones_own_may_use_hugging_faces_datasets(python, folder):
    """In Flower's own processes too, which have the bundle's folders first on their path."""
    source = [word.format(folder=folder) for word in TABLE]
    words = [*source, "data.source=hugging_face_source:load", *SHORT, "rounds=1"]
    done = fedivon(python, folder, "run", "demo", "--runs", "by-hf", "--set", *words)
    assert done.returncode == 0, done.stderr + done.stdout


COMMAND_LINES = {
    "list": [],
    "show": ["{run}"],
    "report": ["{run}"],
    "compare": ["{run}"],
    "uncertainty": ["{run}"],
    "settings": ["demo"],
    "keys": ["keys", "--host", "localhost", "--site", "clinic"],
    "deal": ["demo", "--site", "one", "two"],
    "doctor": ["--keys", "keys/sites/clinic"],
}
ALL = """
import json, sys
from fedivon_app.cli.main import main

for words in json.loads(sys.argv[1]):
    try:
        status = main(words)
    except SystemExit as end:  # after --help
        status = end.code
    print("exit", words[0], status, flush=True)
"""


def test_every_command_works_from_the_wheel(python, folder, run):
    """All of them, in one process; those that need a federation, or take long, say their help."""
    lines = []
    for command in COMMANDS:
        words = COMMAND_LINES.get(command, ["--help"])
        lines.append([command, *(word.format(run=run) for word in words)])
    done = subprocess.run(
        [python, "-c", ALL, json.dumps(lines)], cwd=folder, capture_output=True, text=True
    )
    ended = [line for line in done.stdout.splitlines() if line.startswith("exit ")]
    assert ended == [f"exit {command} 0" for command in COMMANDS], done.stderr
    assert "Traceback" not in done.stderr
