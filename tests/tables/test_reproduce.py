"""`fedivon reproduce` from beginning to end: real servers and clients, in one process."""

import json
from dataclasses import replace

import pytest

from fedivon_app.cli.commands import reproduce
from fedivon_app.cli.main import main
from fedivon_app.clients.fedavg import PointClient
from fedivon_app.core.posterior import Posterior
from fedivon_app.runs import fingerprint
from fedivon_app.runs.cost import payload_bytes
from fedivon_app.runs.version import commit
from fedivon_app.tables.conditions import Condition, Wanted
from fedivon_app.tables.estimate import estimate
from fedivon_app.tables.filled import fill
from fedivon_app.tables.flops import gigaflops
from fedivon_app.tables.reproduce import count_operations, merged, missing
from fedivon_app.tables.result_file import ResultFiles
from fedivon_app.tables.table_file import read_table
from tests.one_process import in_one_process
from tests.tables.toy import TABLE, conf_with, outcome


@pytest.fixture
def federation(tmp_path, monkeypatch):
    conf = conf_with(tmp_path, toy=TABLE)
    known = lambda name: read_table(name, conf)  # noqa: E731
    monkeypatch.setattr(reproduce, "read_table", known)
    monkeypatch.setattr(reproduce, "table_names", lambda: ["toy"])
    return in_one_process(monkeypatch)


@pytest.fixture
def command(tmp_path):
    def calling(*words):
        folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
        return main(["reproduce", *words, *folders])

    return calling


def test_a_table_is_run_kept_judged_and_not_run_twice(federation, command, tmp_path, capsys):
    assert command("toy", "--rows", "digits", "--scale", "quick") == 0
    shown = capsys.readouterr().out
    assert "demo --strategy fedivon --set data.clients=4" in shown
    assert "time not known before its first round" in shown and "in all 2 runs" in shown
    assert "toy, scale quick: " in shown and "FedIvon is ahead. This " in shown
    assert len(federation.configs) == 2
    kept = json.loads((tmp_path / "results" / "demo.json").read_text())
    assert [one["strategy"] for one in kept["conditions"]] == ["fedavg", "fedivon"]
    assert kept["conditions"][0]["runs"][0]["scores"]["gm.test.mean.accuracy"]["1"] > 0.05
    page = tmp_path / "runs" / "reproduce" / "toy-quick.html"
    assert "FedIvon@mean" in page.read_text() and page.with_suffix(".md").is_file()
    assert command("toy", "--rows", "digits", "--scale", "quick") == 0
    assert len(federation.configs) == 2
    assert command("--list") == 0
    assert "toy" in capsys.readouterr().out
    # A second seed alone is missing then, and its time is known from the first.
    assert command("toy", "--rows", "FedIvon", "--scale", "quick", "--seeds", "2", "--plan") == 0
    assert "seed 1, about" in capsys.readouterr().out and len(federation.configs) == 2


def test_the_same_command_goes_on_after_an_interruption(federation, command, tmp_path, capsys):
    federation.stop_at = 2
    assert command("toy", "--rows", "digits", "--scale", "quick") == 130
    assert ResultFiles(tmp_path / "results").of("demo").keys() == {
        Condition("demo", "fedavg", (*SET, "rounds=1"))
    }
    federation.stop_at = None
    assert command("toy", "--rows", "digits", "--scale", "quick") == 0
    assert [config["strategy"] for config in federation.configs] == ["fedavg", "fedivon", "fedivon"]


def test_a_run_whose_numbers_were_lost_is_taken_from_its_folder(federation, command, tmp_path):
    assert command("toy", "--rows", "FedAvg", "--scale", "quick") == 0
    made = len(federation.configs)
    (tmp_path / "results" / "demo.json").unlink()
    assert command("toy", "--rows", "FedAvg", "--scale", "quick") == 0
    assert len(federation.configs) == made
    assert ResultFiles(tmp_path / "results").of("demo")


def test_again_runs_what_is_older_than_the_code(federation, command, monkeypatch, capsys):
    words = ("toy", "--rows", "digits", "--scale", "quick")
    assert command(*words) == 0
    source = fingerprint._source

    def edited(name):
        return source(name) + ("\nLINE = 1\n" if name == "fedivon_app.clients.fedivon" else "")

    monkeypatch.setattr(fingerprint, "_source", edited)
    assert command(*words) == 0
    assert len(federation.configs) == 2
    assert command(*words, "--again") == 0
    assert [config["strategy"] for config in federation.configs[2:]] == ["fedivon"]


def test_what_is_older_than_the_code_is_checked_by_its_first_rounds(
    federation, command, monkeypatch, capsys, tmp_path
):
    words = ("toy", "--rows", "digits", "--scale", "here", "--seeds", "1")
    assert command(*words) == 0
    assert command(*words, "--check") == 0
    assert "nothing is older than the code" in capsys.readouterr().out
    source = fingerprint._source

    def edited(name):
        return source(name) + ("\nLINE = 1\n" if name == "fedivon_app.clients.fedivon" else "")

    monkeypatch.setattr(fingerprint, "_source", edited)
    assert command(*words, "--check") == 0
    assert [config["strategy"] for config in federation.configs[2:]] == ["fedivon"]
    assert "run.stop_after=2" in federation.configs[2]["set"]
    shown = capsys.readouterr().out
    assert "the first rounds are the same" in shown
    filled = fill(read_table("toy", tmp_path / "conf"), "here", ResultFiles(tmp_path / "results"))
    ages = {row: age for (_, row), age in filled.ages.items()}
    assert not filled.stale and ages["FedIvon"].checked == (commit(),)
    assert "first rounds checked at" in ages["FedIvon"].words
    assert "first rounds checked at" not in ages["FedAvg"].words


def test_numbers_that_other_code_does_not_give_again_stay_marked(
    federation, command, monkeypatch, capsys, tmp_path
):
    words = ("toy", "--rows", "FedAvg", "--scale", "here", "--seeds", "1")
    assert command(*words) == 0
    source = fingerprint._source

    def edited(name):
        return source(name) + ("\nLINE = 1\n" if name == "fedivon_app.clients.fedavg" else "")

    monkeypatch.setattr(fingerprint, "_source", edited)
    training = PointClient.train

    def other(client, start, task):
        learned = training(client, start, task)
        return replace(learned, posterior=Posterior(1.01 * learned.posterior.mean))

    monkeypatch.setattr(PointClient, "train", other)
    assert command(*words, "--check") == 1
    assert "the first rounds differ" in capsys.readouterr().out
    table = read_table("toy", tmp_path / "conf")
    assert fill(table, "here", ResultFiles(tmp_path / "results")).stale


def test_mistakes_are_told(command, federation, capsys):
    assert command() == 2
    assert "name a table, such as fedivon-table1" in capsys.readouterr().err
    assert command("toy", "--rows", "FedIvom") == 2
    assert "did you mean FedIvon" in capsys.readouterr().err
    assert not federation.configs


SET = ("data.clients=4", "clients_per_round=null", "evaluation.every=1")


def test_what_several_tables_want_is_run_once_with_the_most_seeds():
    one = Condition("demo", "fedavg", SET)
    other = Condition("demo", "fedivon", SET)
    several = [Wanted(one, 1), Wanted(other, 1), Wanted(one, 3, flops=True)]
    assert merged(several) == [Wanted(one, 3, flops=True), Wanted(other, 1)]


def test_operations_are_counted_by_the_settings_and_nothing_is_run_for_them(tmp_path):
    condition = Condition("demo", "fedavg", SET)
    results = ResultFiles(tmp_path)
    results.add(condition, condition.settings(), outcome("fedavg", 0))
    assert not missing([Wanted(condition, 1, flops=True)], results)
    count_operations([Wanted(condition, 1)], results)
    assert results.find(condition).runs[0].gigaflops is None
    count_operations([Wanted(condition, 1, flops=True)], results)
    kept = ResultFiles(tmp_path).find(condition).runs[0]
    assert kept.gigaflops == gigaflops(condition.settings()) > 0
    assert kept.scores == outcome("fedavg", 0).scores


def test_seeds_come_last_so_that_an_unfinished_table_compares_all_rows(tmp_path):
    one = Condition("demo", "fedavg", SET)
    other = Condition("demo", "fedivon", SET)
    results = ResultFiles(tmp_path)
    results.add(one, one.settings(1), outcome("fedavg", 1))
    left = missing([Wanted(one, 2), Wanted(other, 2)], results)
    assert [(run.condition.strategy, run.seed) for run in left] == [
        ("fedavg", 0),
        ("fedivon", 0),
        ("fedivon", 1),
    ]


def test_time_is_that_of_earlier_rounds_and_bytes_are_known_before_any(tmp_path):
    condition = Condition("demo", "fedivon", (*SET, "rounds=10"))
    settings = condition.settings()
    results = ResultFiles(tmp_path)
    before = estimate(condition, settings, results)
    weights = payload_bytes(settings) / 8  # a mean and a precision, of four bytes each
    assert before.seconds is None and before.bytes == 10 * 2 * 4 * 8 * weights
    earlier = Condition("demo", "fedivon", SET)
    results.add(earlier, earlier.settings(), outcome("fedivon"))
    known = estimate(condition, settings, results)
    assert known.seconds == pytest.approx(50) and known.bytes == pytest.approx(10 * 4 * 0.5e6)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (["rounds=20", "client.epochs=5"], 10),
        (["rounds=1", "client.epochs=400"], 40),
        (["clients_per_round=2", "client.epochs=400"], 20),
        (["data.max_examples=36", "client.epochs=400"], 4),  # of 359
        (["model.options={sizes: [64, 64]}"], None),
    ],
)
def test_time_goes_by_rounds_epochs_clients_and_examples(words, seconds, tmp_path):
    """One round of 400 epochs was measured: 40 s in the middle one of three runs."""
    results = ResultFiles(tmp_path)
    earlier = Condition("demo", "fedivon", (*SET, "rounds=1", "client.epochs=400"))
    for seed, slower in enumerate((1, 0.5, 9)):
        run = outcome("fedivon", seed, rounds=1, seconds=40.0 * slower)
        results.add(earlier, earlier.settings(seed), run)
    planned = Condition("demo", "fedivon", (*SET, "rounds=1", *words))
    known = estimate(planned, planned.settings(), results).seconds
    assert known == (seconds if seconds is None else pytest.approx(seconds, rel=0.02))
