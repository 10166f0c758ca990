"""Tables for a terminal, and for other programs."""

import csv
import json

import pytest

from fedivon_app.cli.commands.uncertainty import uncertainty_table
from fedivon_app.cli.summaries import own_scores, summary_table
from fedivon_app.cli.table_formats import FORMS
from fedivon_app.cli.tables import ScoredRow, layout, scores_table
from tests.cli.helpers import SCORES

SUMMARY = {"experiment": "demo", "strategy": "fedivon", "seed": 0, "rounds": 9, "best": None}

OWN = """
from fedivon_app.core.scores import Score

SURE = Score("sure", "Sure", True, value=lambda tally: 1.0, digits=1, percent=True)
"""


def test_words_stand_to_the_left_and_numbers_to_the_right():
    table = layout([["who", "n"], ["a", "100"], ["bcde", "1"]], words=1)
    assert table.splitlines() == ["who     n", "---------", "a     100", "bcde    1"]


def test_table_has_a_line_for_each_way_of_predicting():
    gm = {"test": {"mean": SCORES, "mc": SCORES | {"nll": 1.0, "samples": 64}}}
    summary = SUMMARY | {"final": gm, "best": {"round": 5, "score": 1, "gm": gm}}
    lines = summary_table([summary]).splitlines()
    assert lines[0].split()[-6:] == ["model", "accuracy", "%", "NLL", "ECE", "Brier"]
    assert len(lines) == 2 + 4
    assert "GM, 64 samples" in lines[3] and lines[3].split()[-4:] == [
        "50.00",
        "1.0000",
        "0.1000",
        "0.6000",
    ]
    assert "GM at the mean, best held-out" in lines[4]


def test_personal_models_have_lines_of_their_own():
    clients = {"mean": SCORES, "by_client": [], "over_clients": {}}
    gm = {"clients_before_training": clients}
    pm = {"clients_after_training": clients}
    lines = summary_table([SUMMARY | {"final": gm, "personal": pm}]).splitlines()
    assert "GM at the mean, clients' test parts" in lines[2]
    assert "PM at the mean, clients' test parts" in lines[3] and len(lines) == 4


def test_a_score_of_a_runs_own_has_a_column():
    own = SUMMARY | {"final": {"test": {"mean": SCORES | {"margin": 0.25}}}}
    other = SUMMARY | {"final": {"test": {"mean": SCORES}}}
    lines = summary_table([own, other]).splitlines()
    assert lines[0].split()[-2:] == ["Brier", "margin"]
    assert [line.split()[-1] for line in lines[2:]] == ["0.2500", "-"]


def test_a_score_that_can_be_imported_is_shown_as_it_says(tmp_path, monkeypatch):
    (tmp_path / "scores_of_our_own.py").write_text(OWN)
    (tmp_path / "settings.yaml").write_text(
        "strategy: fedivon\nevaluation: {scores: ['scores_of_our_own:SURE']}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    paths = own_scores([tmp_path, tmp_path])
    assert paths == ["scores_of_our_own:SURE"]
    summary = SUMMARY | {"final": {"test": {"mean": SCORES | {"sure": 0.125}}}}
    lines = summary_table([summary], paths).splitlines()
    assert lines[0].endswith("  sure %") and lines[2].endswith("  12.5")


def test_scores_of_runs_from_before_there_were_own_ones(tmp_path):
    assert own_scores([tmp_path]) == []
    (tmp_path / "settings.yaml").write_text("strategy: fedivon\n")
    assert own_scores([tmp_path]) == []


def test_several_models_are_shown_by_mean_and_spread():
    runs = [SCORES, SCORES | {"accuracy": 0.75, "nll": 1.75}]
    line = scores_table(["model"], [ScoredRow(["both"], runs)]).splitlines()[2]
    assert [cell.strip() for cell in line.split("  ")[1:]] == [
        "62.50 ± 17.68",
        "1.500 ± 0.354",
        "0.100 ± 0.000",
        "0.600 ± 0.000",
    ]


@pytest.mark.parametrize("own", [(), ("nowhere:MARGIN",)])
def test_a_row_without_scores_has_dashes(own):
    lines = scores_table(["model"], [ScoredRow(["none"], [])], own=own).splitlines()
    assert lines[2].split() == ["none", "-", "-", "-", "-"]


def test_the_table_of_uncertainty_has_the_detection_where_there_is_any():
    mean = {"samples": 0, "scores": SCORES, "ood": {"auroc": {"entropy": 0.875, "aleatoric": 0.75}}}
    mc = {
        "samples": 8,
        "scores": SCORES,
        "ood": {"auroc": {"entropy": 1.0, "aleatoric": 0.5, "epistemic": 0.25}},
    }
    lines = uncertainty_table({"ways": {"mc": mc, "mean": mean}}).splitlines()
    assert lines[2].split()[-3:] == ["0.8750", "0.7500", "-"]
    assert lines[3].split()[-3:] == ["1.0000", "0.5000", "0.2500"]
    assert "AUROC" not in uncertainty_table({"ways": {"mean": {"scores": SCORES}}})


def shown_as(form):
    mixed = {"mean": SCORES | {"nll": 1 / 3}, "mc": SCORES | {"margin": 0.25, "samples": 64}}
    named = SUMMARY | {"strategy": "a_b|c", "final": {"test": mixed}}
    return summary_table([named], form=form)


def test_csv_and_json_have_all_digits():
    records = json.loads(shown_as("json"))
    assert [one["nll"] for one in records] == [1 / 3, 1.25]
    assert records[1] == {
        **{"experiment": "demo", "strategy": "a_b|c", "seed": 0, "round": 9},
        **{"model": "GM, 64 samples", "samples": 64},
        **SCORES,
        "margin": 0.25,
    }
    assert records[0]["margin"] is None and records[0]["samples"] == 0
    rows = list(csv.DictReader(shown_as("csv").splitlines()))
    assert [{key: str(value or "") for key, value in row.items()} for row in rows] == [
        {key: "" if value is None else str(value) for key, value in one.items()} for one in records
    ]


def test_markdown_and_latex_show_what_the_terminal_does():
    lines = shown_as("markdown").splitlines()
    assert lines[1].count("---:") == 5 and lines[1].count("---") == 10
    assert lines[2].startswith(r"| demo | a_b\|c | 0 | 9 | GM at the mean | 50.00 | 0.3333 |")
    lines = shown_as("latex").splitlines()
    assert lines[0] == r"\begin{tabular}{lllllrrrrr}" and lines[-1] == r"\end{tabular}"
    assert r"accuracy \% & NLL & ECE & Brier & margin \\" in lines[2]
    assert lines[4].startswith(r"demo & a\_b|c & 0 & 9 & GM at the mean & 50.00 & 0.3333")
    assert lines[4].endswith(r" & - \\")


@pytest.mark.parametrize("form", FORMS)
def test_a_table_of_nothing_can_be_written(form):
    assert summary_table([], form=form)
