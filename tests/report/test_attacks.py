"""The chapter on attacks: heat maps of a comparison, and the record of a run's clients."""

from itertools import pairwise

import numpy as np
import pytest

from fedivon_app.report.heat_plot import Heat, heat_map
from fedivon_app.report.pages import write_comparison, write_report
from tests.report.pages import new_run, read, record, scored

pytestmark = pytest.mark.usefixtures("quick")


def test_a_comparison_has_a_field_for_every_attack_and_defence(tmp_path):
    runs = []
    for attack in ("none", "sign-flip", "alie"):
        for robust in ("none", "auto"):
            words = [f"attack.kind={attack}", "attack.share=0.2", f"merge.robust={robust}"]
            accuracy = 0.9 if robust == "auto" else 0.4
            runs.append(new_run(tmp_path / f"{attack}-{robust}", scored(accuracy), sets=words))
    path = write_comparison(runs, tmp_path)
    assert '<section id="attacks"' in path.read_text()
    titles = read(path).titles
    assert "Accuracy % under attack" in titles and "ECE under attack" in titles


def test_numbers_stand_in_their_fields_and_empty_ones_stay_empty():
    values = np.array([[96.6, 96.3], [np.nan, 95.8]])
    figure = heat_map(Heat("x", ["no attack", "sign-flip, 20%"], ["none", "auto"], values))
    texts = {(text.get_position(), text.get_text()) for axes in figure.axes for text in axes.texts}
    assert texts == {((0, 0), "96.6"), ((1, 0), "96.3"), ((1, 1), "95.8")}


def test_names_of_columns_do_not_overlap():
    columns = ["fedivon\ngeometric-median\nwith mixing", "fedivon\ncentred-clipping"] * 2
    figure = heat_map(Heat("x", ["no attack"], columns, np.array([[96.6, 96.3, 90.0, 0.0]])))
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert boxes[0].x0 > 0 and boxes[-1].x1 < figure.bbox.x1


def test_a_run_that_diverged_leaves_shades_for_what_others_lose():
    values = np.array([[96.0], [92.0], [0.0]])
    figure = heat_map(Heat("x", ["none", "alie", "worst"], ["auto"], values))
    best, less, worst = figure.axes[0].images[0].get_array().ravel()
    assert (best, worst) == (0, 1) and less > 0.2


def test_a_runs_page_marks_the_liars_and_what_became_of_their_replies(tmp_path):
    dropped = [{"partition": 7, "reason": "its opposition over the run is 0.4"}]
    clients = [{"partition": p, "loss": 1.0} for p in (0, 2)]
    clients[1]["bounded"] = {"change": 7.0}
    more = {"dropped": dropped, "not_chosen": [3], "left_out": [7], "clients": clients}
    words = ["attack.kind=sign-flip", "attack.clients=[7,9]", "merge.robust=auto"]
    run = new_run(tmp_path, [record(1), record(2, **more)], sets=words)
    page = read(write_report(run))
    assert page.row("7") == ["7", "yes", "0", "—", "1", "0", "round 2"]
    assert page.row("9") == ["9", "yes", "0", "—", "0", "0", "—"]
    assert page.row("2", "—") == ["2", "—", "2", "change 1", "0", "0", "—"]
    assert page.row("3", "—")[5] == "1"


def test_without_attacks_and_doubts_there_is_no_such_chapter(tmp_path):
    runs = [new_run(tmp_path / str(seed), scored(), seed=seed) for seed in range(2)]
    assert '<section id="attacks"' not in write_comparison(runs, tmp_path).read_text()
    assert '<section id="attacks"' not in write_report(runs[0]).read_text()
