"""The chapter on privacy: what each client has spent, in the end and round by round."""

import pytest

from fedivon_app.report.chapters.privacy import spent
from fedivon_app.report.pages import write_comparison, write_report
from fedivon_app.report.results import RunResults
from tests.report.pages import new_run, read, record, scored

pytestmark = pytest.mark.usefixtures("quick")
PRIVATE = ["privacy.epsilon=4", "evaluation.clients_every=0"]
PARTS = {1: (0, 1), 2: (1, 2)}  # who takes part in which round


def private_rounds():
    """Two rounds, in which client 1 takes part twice."""
    rounds = []
    for number, there in PARTS.items():
        clients = [
            {"partition": p, "num_examples": 5, "bytes": 9, "epsilon": number + p / 10, "noise": 1}
            for p in there
        ]
        rounds.append(record(number, clients=clients))
    return rounds


def test_a_private_run_shows_epsilon_by_client_and_by_round(tmp_path):
    run = new_run(tmp_path, private_rounds(), sets=PRIVATE)
    path = write_report(run)
    assert '<section id="privacy"' in path.read_text()
    titles = read(path).titles
    assert "Epsilon by client" in titles and "Epsilon by round" in titles
    by_client = spent(RunResults.read(run))
    assert by_client == {0: {1: 1.0}, 1: {1: 1.1, 2: 2.1}, 2: {2: 2.2}}


def test_a_comparison_shows_what_the_clients_of_private_runs_came_to(tmp_path):
    private = new_run(tmp_path / "private", private_rounds(), sets=PRIVATE)
    path = write_comparison([private, new_run(tmp_path / "open", scored())], tmp_path)
    titles = read(path).titles
    assert "Epsilon by client" in titles and "Epsilon by round" not in titles


def test_a_run_that_is_not_private_has_no_such_chapter(tmp_path):
    path = write_report(new_run(tmp_path, scored()))
    assert '<section id="privacy"' not in path.read_text()
