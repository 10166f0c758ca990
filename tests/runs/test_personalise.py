"""Personal models after a run: a newcomer's, and those that the run's clients kept."""

import json
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import RecordDict

from fedivon_app.cli.main import main
from fedivon_app.core import client_scores
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.core.instructions import Instructions
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.datasets.sources import load
from fedivon_app.methods import method, settings_of
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.folder import Run
from fedivon_app.runs.personalise import kept_models, personalise, score_again
from fedivon_app.runs.trained_model import Trained
from fedivon_app.server.setup import prepare

NAME = "fedivon-personal"
WORDS = ["data.clients=3", "clients_per_round=2", "data.partition=labels"]
WORDS += ["evaluation.samples=4", "evaluation.final_samples=4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run after one round of three clients, two of them merged, and what its evaluation found.

    The tallies of the evaluation went the way of the wire, those of `score_again` do not.
    """
    root = tmp_path_factory.mktemp("runs")
    settings = compose(
        settings_of, "demo", NAME, [*WORDS, f"run.folder={root}", "run.client_state=run"]
    )
    run = Run.create(settings)
    prepared = prepare(settings)
    data = prepared.data
    known = {"shape": data.shape, "num_classes": data.num_classes, "class_names": None}
    run.write("model.json", json.dumps(known))
    strategy = method(NAME).strategy(settings, prepared.architecture)
    payload = strategy.begin(prepared.flat.mean())
    told = Instructions(round=1, learning_rate=0.3, client_state=str(run.folder / "clients"))
    replies = {}
    sizes = {}
    for k in range(3):
        one = method(NAME).client(
            settings, partition_of(settings, {"partition-id": k}), RecordDict()
        )
        sizes[k] = len(one.partition.train)
        if k < 2:
            one.work(payload, told)
        asked = replace(told, last_merged=1 if k < 2 else 0)
        replies[k] = as_on_the_wire(one.score(payload, asked))
    run.save(Checkpoint(1, payload, {"last_merged": np.array([[0, 1], [1, 1]])}))
    return run, client_scores.gathered(replies, sizes, 4)


def as_on_the_wire(tallies):
    """Return tallies as the server has them, after they went there as Flower's metrics."""
    return client_scores.from_metrics(client_scores.to_metrics(tallies))


def newcomer(folder, **changes):
    """Data of somebody who was not there: only fives and sixes."""
    digits = load("digits")
    arrays = {}
    for part in ("train", "test"):
        x = np.asarray(getattr(digits, f"x_{part}"))
        y = np.asarray(getattr(digits, f"y_{part}"))
        rows = np.isin(y, (5, 6))
        arrays |= {f"x_{part}": x[rows], f"y_{part}": y[rows]}
    np.savez(folder / "my.npz", **(arrays | changes))
    return folder / "my.npz"


def test_reloaded_personal_models_score_as_they_did(run):
    one, record = run
    again = score_again(one)
    assert again == record
    assert [c["partition"] for c in again["pm"]["clients_after_training"]["by_client"]] == [0, 1]
    assert set(kept_models(one)) == {0, 1}


def test_a_newcomers_model_fits_its_data_and_can_be_used_again(run, tmp_path):
    fitted = personalise(run[0], newcomer(tmp_path), tmp_path / "out", epochs=20, learning_rate=0.3)
    before = fitted.scores["gm"]["mean"]
    after = fitted.scores["pm"]["mean"]
    assert before["accuracy"] < 0.6 < 0.95 < after["accuracy"] and "mc" in fitted.scores["pm"]
    trained = Trained.open(tmp_path / "out")
    np.testing.assert_array_equal(trained.payload.posterior.mean, fitted.payload.posterior.mean)
    told = json.loads((tmp_path / "out" / "personal.json").read_text())
    assert told["scores"] == fitted.scores and told["num_test"] == fitted.num_test
    with pytest.raises(SettingsError, match="not empty"):
        personalise(run[0], newcomer(tmp_path), tmp_path / "out")


def test_data_that_do_not_fit_the_model_are_refused_by_name(run, tmp_path):
    with pytest.raises(DataError, match="label 12, out of range for 10 classes"):
        personalise(run[0], newcomer(tmp_path, y_test=np.full(72, 12)), tmp_path / "a")
    wide = {f"x_{part}": np.zeros((n, 9, 9)) for part, n in (("train", 291), ("test", 72))}
    with pytest.raises(DataError, match=r"shape \(9, 9, 1\), the run's model takes \(8, 8, 1\)"):
        personalise(run[0], newcomer(tmp_path, **wide), tmp_path / "a")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"is a table, but the run's model was not trained on"):
        personalise(run[0], tmp_path / "rows.csv", tmp_path / "a")


def test_both_commands_print_a_table(run, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out"), "--epochs", "1"]
    assert main(["personalise", str(run[0].folder), "--data", str(newcomer(tmp_path)), *out]) == 0
    printed = capsys.readouterr().out
    assert "GM at the mean" in printed and "PM, 4 samples" in printed
    assert main(["clients", str(run[0].folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["client", "examples", "GM", "accuracy", "%", "PM", "accuracy", "%"]
    assert len(lines) == 2 + 3 + 4
    assert lines[4].endswith("-")  # the third client has no model of its own


def test_runs_without_personal_models_say_so(tmp_path):
    settings = compose(settings_of, "demo", "fedavg", [f"run.folder={tmp_path}"])
    with pytest.raises(SettingsError, match="with its nodes"):
        kept_models(Run.create(settings))
    settings = compose(
        settings_of, "demo", "fedavg", [f"run.folder={tmp_path}", "run.client_state=run"]
    )
    run = Run.create(settings)
    with pytest.raises(SettingsError, match="no checkpoint"):
        kept_models(run)
    prepared = prepare(settings)
    strategy = method("fedavg").strategy(settings, prepared.architecture)
    nobody = {"last_merged": np.empty((0, 2), np.int64)}
    run.save(Checkpoint(1, strategy.begin(prepared.flat.mean()), nobody))
    with pytest.raises(SettingsError, match="kept no personal models"):
        kept_models(run)
