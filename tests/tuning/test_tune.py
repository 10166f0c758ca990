"""`fedivon tune` from beginning to end: real servers and clients, in one process."""

import json

import pytest
import yaml

from fedivon_app import server_app
from fedivon_app.cli.commands import tune
from fedivon_app.cli.main import main
from fedivon_app.runs.catalogue import find
from fedivon_app.runs.folder import Run
from tests.one_process import in_one_process

SMALL = [
    "data.clients=4",
    "data.max_examples=60",
    "clients_per_round=null",
    "rounds=9",
    "client.epochs=1",
    "model.options={sizes: [16], activation: relu}",
    "evaluation.samples=4",
    "evaluation.final_samples=4",
]


@pytest.fixture
def federation(monkeypatch):
    monkeypatch.setattr(server_app, "assess", lambda run, predicted: None)
    return in_one_process(monkeypatch)


@pytest.fixture
def command(tmp_path):
    def calling(*words):
        return main(["tune", "demo", *words, "--runs", str(tmp_path), "--set", *SMALL])

    return calling


def trials_of(place, strategy):
    lines = (place / "study" / f"{strategy}.jsonl").read_text().splitlines()
    return [line for one in lines if "begins" in (line := json.loads(one))]


def test_two_methods_are_searched_and_the_best_run_again(federation, command, tmp_path, capsys):
    words = ("--strategy", "fedavg", "fedivon", "--budget", "2", "--seeds", "2")
    federation.stop_at = 5
    assert command(*words) == 130
    federation.stop_at = None
    assert command(*words, "--verbose") == 0
    lines = capsys.readouterr().out.splitlines()
    shown = "\n".join(line for line in lines if not line.startswith("fedivon | "))  # the server's
    place = tmp_path / "tune-demo"

    # The search: every method has the same rounds, and its first trial is the experiment's own.
    assert "144 of 1,442 training examples" in shown and "holds no examples out" in shown
    assert "fedavg, trial 1 of about 6: client.learning_rate=0.01" in shown
    assert "best so far" in shown and "so far, about" in shown
    runs = {one.folder.name: one for one in find([place / "trials"])}
    for strategy in ("fedavg", "fedivon"):
        own = [one for name, one in runs.items() if name.startswith(f"{strategy}-")]
        assert len(own) == len(trials_of(place, strategy)) >= 3
        assert {one.rounds for one in own} <= {1, 3, 9}
        assert any(one.rounds == 9 for one in own) and any(one.rounds < 9 for one in own)
        assert sum(one.rounds for one in own) <= 2 * 9 + 8
    first = Run.open(place / "trials" / "fedavg-001").settings
    assert (first.client.learning_rate, first.client.final_learning_rate) == (0.01, 0.001)
    assert first.seed == 0 and first.data.holdout == 144
    second = Run.open(place / "trials" / "fedavg-002").settings.client
    assert second.final_learning_rate == pytest.approx(second.learning_rate / 10, rel=0.01)

    # The test set is not looked at before the end, and the page has the scores of new seeds.
    records = [record for one in runs.values() for record in one.run.metrics() if "gm" in record]
    assert records and all(set(record["gm"]) == {"holdout"} for record in records)
    before, _, after = shown.partition("on the test set, under seeds that the search has not seen")
    assert "acc " not in before and "train loss" in before
    assert "fedivon   2      GM, 4 samples" in after
    finals = [found.run.settings for found in find([place / "best"])]
    assert sorted((one.strategy, one.seed) for one in finals) == [
        (strategy, seed) for strategy in ("fedavg", "fedivon") for seed in (1, 2)
    ]
    assert all(one.data.holdout == 0 and one.evaluation.every == 5 for one in finals)
    page = (place / "tune.html").read_text()
    assert "On the test set, seeds 1 and 2" in page and "held-out NLL by client.ess" in page
    assert (place / "plots" / "fedavg-client-learning_rate.png").is_file()

    # The file of the best is taken by other commands.
    best = yaml.safe_load((place / "best.yaml").read_text())["methods"]
    assert set(best) == {"fedavg", "fedivon"} and "ess" in best["fedivon"]["client"]
    file = str(place / "best.yaml")
    assert main(["settings", "demo", "--strategy", "fedivon", "--set-file", file]) == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["client"]["ess"] == best["fedivon"]["client"]["ess"]

    # Again the same command runs nothing, and more budget goes on.
    made = len(federation.configs)
    assert command(*words) == 0
    assert len(federation.configs) == made
    assert command("--strategy", "fedavg", "--budget", "3", "--seeds", "0") == 0
    assert len(federation.configs) > made


@pytest.fixture
def no_page(monkeypatch):
    monkeypatch.setattr(tune, "write_page", lambda about, studies, finals, folder: folder / "page")


def test_a_search_that_was_interrupted_tries_the_same(federation, no_page, command, tmp_path):
    words = ("--strategy", "fedavg", "--budget", "2", "--seeds", "0")
    assert command(*words, "--name", "whole") == 0
    for stop_at in (2, 2):
        federation.configs = []
        federation.stop_at = stop_at
        assert command(*words, "--name", "parts") == 130
    federation.stop_at = None
    assert command(*words, "--name", "parts") == 0
    whole = trials_of(tmp_path / "tune-demo-whole", "fedavg")
    assert trials_of(tmp_path / "tune-demo-parts", "fedavg") == whole
    one, other = (tmp_path / f"tune-demo-{name}" / "best.yaml" for name in ("whole", "parts"))
    assert one.read_text() == other.read_text()


def test_a_run_that_fails_is_a_bad_score(federation, command, tmp_path, capsys):
    words = ("--strategy", "scaffold", "--budget", "1", "--seeds", "1")
    assert command(*words, "--range", "client.learning_rate=1e5:1e6:log") == 1
    shown = capsys.readouterr().out
    assert "failed: " in shown and "scaffold: no trial came to its last round" in shown
    assert (
        "No trial of scaffold came to its last round"
        in (tmp_path / "tune-demo" / "tune.html").read_text()
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--strategy", "local"], "local has no global model here"),
        (["--range", "client.learning_rat=1:2"], "there is no setting 'client.learning_rat'"),
        (
            ["--range", "client.learning_rate=-1:2"],
            "--range client.learning_rate: client.learning_rate is -1.0",
        ),
        (["--range", "client.learning_rate=1"], "leaves no choice"),
        (["--range", "client.learning_rate=2:1"], "from a number to a larger one"),
        (["--range", "client.ess=0:1:log"], "must begin above 0"),
        (["--range", "client.ess"], "is not of the form"),
        (["--strategy", "fedavgg"], "there is no strategy 'fedavgg'"),
        (["--name", "a/b"], "folder"),
    ],
)
def test_mistakes_are_told_before_anything_runs(federation, command, tmp_path, capsys, words, says):
    assert command("--budget", "1", *words) == 2
    error = capsys.readouterr().err
    assert says in error and len(error.splitlines()) == 1
    assert not federation.configs and not list(tmp_path.iterdir())


def test_what_is_merged_by_held_out_examples_is_not_judged_by_them(tmp_path, capsys):
    words = ["--budget", "1", "--runs", str(tmp_path), "--set", *SMALL, "data.holdout=100"]
    assert main(["tune", "demo", *words, "merge.robust=held-out"]) == 2
    assert "cannot be what a search judges by" in capsys.readouterr().err


def test_another_search_needs_another_name(federation, no_page, command, capsys):
    words = ("--strategy", "fedavg", "--budget", "1", "--seeds", "0")
    assert command(*words) == 0
    assert command(*words, "--holdout", "100") == 2
    error = capsys.readouterr().err
    assert "data.holdout is 100 and was 144" in error and "--name makes a second one" in error


def test_what_is_set_is_not_searched(federation, command, capsys, tmp_path):
    names = ["client.learning_rate=0.02", "client.weight_decay=0"]
    call = ["tune", "demo", "--strategy", "fedavg", "--budget", "1", "--runs", str(tmp_path)]
    assert main([*call, "--set", *SMALL, *names]) == 2
    assert "nothing is left to search for fedavg" in capsys.readouterr().err


def test_a_start_is_tried_first_and_nobody_is_judged_before_the_first_stop(
    federation, no_page, command, tmp_path
):
    start = ["client.optimizer=sgd", "client.learning_rate=0.2", "client.final_learning_rate=0.1"]
    words = ("--strategy", "fedavg", "--budget", "2", "--seeds", "1", "--first-stop", "5")
    assert command(*words, "--start", *start) == 0
    place = tmp_path / "tune-demo"
    trials = trials_of(place, "fedavg")
    assert trials[0]["values"]["client.learning_rate"] == 0.2 and len(trials) > 1
    assert trials[1]["values"]["client.learning_rate"] != 0.2  # it is searched all the same
    runs = [one.run.settings for one in find([place / "trials"])]
    assert {one.evaluation.at for one in runs} == {(5,)}
    assert {one.client.optimizer for one in runs} == {"sgd"}
    rates = [(one.client.learning_rate, one.client.final_learning_rate) for one in runs]
    assert all(last == pytest.approx(rate / 2, rel=0.01) for rate, last in rates)
    best = yaml.safe_load((place / "best.yaml").read_text())["methods"]["fedavg"]["client"]
    (final,) = (one.run.settings.client for one in find([place / "best"]))
    assert (final.learning_rate, final.optimizer) == (best["learning_rate"], "sgd")
    assert final.final_learning_rate == pytest.approx(final.learning_rate / 2, rel=0.01)


def test_without_optuna_the_command_says_so(federation, command, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    assert command("--budget", "1") == 2
    error = capsys.readouterr().err
    assert "pip install 'fedivon[tune]'" in error and len(error.splitlines()) == 1


def test_the_command_is_noted_without_its_places():
    options = tune.argparse.Namespace(
        experiment="demo",
        strategy=["fedavg"],
        budget=3,
        seeds=1,
        holdout=None,
        first_stop=20,
        range=["client.ess=1:2"],
        start=["client.beta1=0.6"],
        set=[],
    )
    assert tune.command_of(options) == (
        "fedivon tune demo --strategy fedavg --budget 3 --seeds 1 --first-stop 20 "
        "--range client.ess=1:2 --start client.beta1=0.6"
    )
