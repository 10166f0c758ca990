"""The chapter on uncertainty in and out of distribution, and how well it tells the two apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from fedivon_app.report import html, plots
from fedivon_app.report.grouping import Group
from fedivon_app.report.html import Cell, Chapter
from fedivon_app.report.results import UNCERTAINTIES, WAYS, number
from fedivon_app.report.view import PageView, Predictor

FIRST = 3  # the column of the first area
SURE_HEAD = "90 % sure, in / out"


def chapter(view: PageView) -> Chapter | None:
    """Draw histograms of the uncertainties, and write a table of the areas under the ROC curves."""
    drawn = []
    for kind, word in (UNCERTAINTIES | {"deviation": "Deviation"}).items():
        if rows := [shares for one in view.assessed if (shares := _shares(one, kind))]:
            figure = plots.ridges(word, word.lower(), rows)
            drawn.append(view.pictures(f"histogram-{kind}", figure, f"{word}, histogram"))
    table = _table(view)
    if not drawn and not table:
        return None
    if table:
        note = (
            "Filled: the test set. Dashed: the other data set, which it should find less certain. "
            "Each is drawn to its own height."
        )
    else:
        note = "Filled: the test set. No other data set was given to compare it with."
    body = html.paragraph(note) + html.grid(drawn) + table
    return Chapter("ood", "Uncertainty in and out of distribution", body)


def _shares(predictor: Predictor, kind: str) -> plots.Shares | None:
    assessments = [run.assessment(predictor.way) for run in predictor.results]
    found = [h for one in assessments if (h := (one.get("histograms") or {}).get(kind))]
    return plots.Shares.mean(predictor.key, found) if found else None


def _table(view: PageView) -> str:
    """Return the table with its heading; nothing where no run was compared with other data."""
    rows = []
    alike = []
    for group in view.groups:
        for way in reversed(WAYS):
            if row := _row(group, way):
                rows.append(row)
                alike.append((group.settings.data.source, row[FIRST - 1].text))
    if not rows:
        return ""
    for column in range(FIRST, FIRST + len(UNCERTAINTIES)):
        rows = html.mark_best(rows, column, high=True, alike=alike)
    areas = [f"AUROC, {word}" for word in UNCERTAINTIES]
    heads = ["Group", "Prediction", "Against, in / out", *areas, SURE_HEAD]
    first = 1 if view.alone else 0
    note = (
        "Area under the ROC curve of telling the two apart by the uncertainty; 0.5 is chance. "
        "Last, the share of each for which the likeliest class has a probability of 90 % or more."
    )
    table = html.table(heads[first:], [row[first:] for row in rows], FIRST - first)
    return "<h3>Out-of-distribution detection</h3>" + html.paragraph(note) + table


def _row(group: Group, way: str) -> list[Cell] | None:
    found = [ood for run in group.results if (ood := run.assessment(way).get("ood"))]
    if not found:
        return None
    against = {f"{ood['source']}, {ood['num_in']} / {ood['num_out']}" for ood in found}
    areas = [
        html.score_cell([number((ood.get("auroc") or {}).get(kind)) for ood in found])
        for kind in UNCERTAINTIES
    ]
    words = [group.label, WAYS[way], ", ".join(sorted(against))]
    return [*(Cell(word) for word in words), *areas, Cell(_sure(found))]


def _sure(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean shares of which the runs are sure, inside and outside."""
    shares = [ood["sure"] for ood in found if ood.get("sure")]
    if not shares:
        return "-"
    return " / ".join(f"{fmean(one[side] for one in shares):.1%}" for side in ("in", "out"))
