"""The chapter on single classes: how well each is told from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedivon_app.core.scores import MORE_SCORES
from fedivon_app.report import html
from fedivon_app.report.html import Cell, Chapter
from fedivon_app.report.results import WAYS, number
from fedivon_app.report.view import PageView, Predictor

FIRST = 3  # the column of the first score
NOTE = (
    "Each class against all others, by its probability, on the test set. Sensitivity is the share "
    "of the class that is found at a threshold that leaves this share of the others alone."
)


def chapter(view: PageView) -> Chapter | None:
    """Write a table of the scores of each class, where runs were asked for any."""
    found = [(one, scores) for one in view.assessed if (scores := _scores(one))]
    names = list(dict.fromkeys(name for _, scores in found for name in scores))
    if not names:
        return None
    rows = [row for one, scores in found for row in _rows(one, scores, names)]
    heads = ["Group", "Prediction", "Class", *(MORE_SCORES[name].label for name in names)]
    first = 1 if view.alone else 0
    table = html.table(heads[first:], [row[first:] for row in rows], FIRST - first)
    return Chapter("by-class", "Single classes", html.paragraph(NOTE) + table)


def _scores(predictor: Predictor) -> Mapping[str, list[Sequence[Any]]]:
    """Return by score the values of every class, a list for each run."""
    found: dict[str, list[Sequence[Any]]] = {}
    for run in predictor.results:
        for name, values in (run.assessment(predictor.way).get("by_class") or {}).items():
            if name in MORE_SCORES:
                found.setdefault(name, []).append(values)
    return found


def _rows(
    predictor: Predictor, scores: Mapping[str, list[Sequence[Any]]], names: Sequence[str]
) -> list[list[Cell]]:
    size = min(len(values) for runs in scores.values() for values in runs)
    called = next((run.uncertainty.get("class_names") for run in predictor.results), None)
    rows = []
    for place in range(size):
        cells = [
            html.score_cell([number(values[place]) for values in scores.get(name, [])])
            for name in names
        ]
        what = called[place] if called else str(place)
        rows.append([Cell(predictor.label), Cell(WAYS[predictor.way]), Cell(str(what)), *cells])
    return rows
