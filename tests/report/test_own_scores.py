"""Scores that the project does not have: pages and plots show what the settings name."""

import re

import numpy as np
import pytest

from fedivon_app.report import pages
from fedivon_app.report.html import NOTHING
from fedivon_app.report.pages import plot_learning, write_comparison, write_report
from tests.report.pages import new_run, read, record, scores

pytestmark = pytest.mark.usefixtures("quick")

MODULE = """
from fedivon_app.core.scores import Score

MARGIN = Score(
    "margin", "Margin & more", True, value=lambda tally: 0.0, digits=1, percent=True
)
REGRET = Score("the regret", "Regret", False, value=lambda tally: 0.0, digits=2)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The overrides of a run with two scores of the user's own."""
    (tmp_path / "scores_of_a_user.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return ["evaluation.scores=[scores_of_a_user:MARGIN, scores_of_a_user:REGRET]"]


def rounds(margin, regret):
    """Two rounds, of which the second is better."""
    both = [
        scores(0.5, margin=margin / 2, **{"the regret": 2 * regret}),
        scores(0.5, margin=margin, **{"the regret": regret}),
    ]
    return [record(n + 1, gm={"test": {"mean": one}}) for n, one in enumerate(both)]


HEADS = ["Prediction", "Accuracy %", "NLL", "ECE", "Brier", "Margin & more %", "Regret"]


def test_the_page_of_a_run_shows_them_with_their_labels(tmp_path, own):
    run = new_run(tmp_path / "runs", rounds(0.25, 1.25), sets=own)
    path = write_report(run)
    page = read(path)
    assert page.rows[0] == ["Scored on", *HEADS, "Round"]
    assert page.row("central test set", "at the mean")[-3:] == ["25.0", "1.25", "2"]
    titles = re.findall(r"<title>(.*?) against rounds</title>", path.read_text())
    assert titles == ["Accuracy %", "NLL", "ECE", "Margin &amp; more %", "Regret"]


def test_they_have_pictures_of_their_own(tmp_path, own, pngs):
    run = new_run(tmp_path / "runs", rounds(0.25, 1.25), sets=own)
    write_report(run)
    names = {path.stem for path in (run.folder / "plots").iterdir()}
    assert {"margin-rounds", "margin-bytes", "the-regret-rounds", "the-regret-bytes"} < names


def test_a_comparison_marks_their_best_by_their_own_direction(tmp_path, own):
    without = [record(2, gm={"test": {"mean": scores(0.5)}})]
    runs = [
        new_run(tmp_path / "runs", rounds(0.25, 1.0), seed=0, sets=own),
        new_run(tmp_path / "runs", rounds(0.35, 1.5), seed=1, sets=own),
        new_run(tmp_path / "runs", rounds(0.2, 0.9), sets=[*own, "client.ess=7"]),
        new_run(tmp_path / "runs", without, sets=["client.ess=8"]),
    ]
    page = read(write_comparison(runs, tmp_path / "both", ["two", "one", "without"]))
    assert page.rows[0] == ["Group", *HEADS, "Runs", "Round"]
    assert page.row("two", "at the mean")[6:8] == ["30.0 ± 7.1★ best", "1.25 ± 0.35"]
    assert page.row("one", "at the mean")[6:8] == ["20.0", "0.90★ best"]
    assert page.row("without", "at the mean")[6:8] == [NOTHING, NOTHING]


def test_pages_of_runs_that_hold_none_have_no_column_for_them(tmp_path, own):
    records = [record(2, gm={"test": {"mean": scores(0.5)}})]
    page = read(write_report(new_run(tmp_path / "runs", records, sets=own)))
    assert page.rows[0] == ["Scored on", *HEADS[:5], "Round"]


def test_the_learning_plot_has_a_panel_for_each(tmp_path, own, monkeypatch):
    drawn = []
    monkeypatch.setattr(pages, "learning", lambda panels, title, width: drawn.extend(panels))
    monkeypatch.setattr(pages, "write_figure", lambda figure, path: path)
    plot_learning([new_run(tmp_path / "runs", rounds(0.25, 1.25), sets=own)], tmp_path / "a.png")
    titles = ["test accuracy, %", "test NLL", "test ECE", "test Brier score"]
    assert [panel.title for panel in drawn] == [*titles, "test Margin & more, %", "test Regret"]
    np.testing.assert_allclose(drawn[-1].lines[0].y, [2.5, 1.25])
