"""The chapter with a list of the runs that a comparison is made of."""

from __future__ import annotations

from fedivon_app.core.text import data_size
from fedivon_app.plurals import counted
from fedivon_app.report import html
from fedivon_app.report.grouping import Group
from fedivon_app.report.html import NOTHING, Cell, Chapter
from fedivon_app.report.results import RunResults
from fedivon_app.report.view import PageView

COLUMNS = ["Group", "Status", "Seed", "Rounds", "Time", "Sent", "Folder"]
SHORT = 4  # columns of the list of those that were left out, before the reason
WHY = "These failed, or did not end while others of their group did; no figure or mean has them."


def chapter(view: PageView) -> Chapter | None:
    """List all runs, and say why some are left out; the page of one run needs no list."""
    if not view.compares:
        return None
    rows = [_row(group, run) for group in view.groups for run in group.members]
    lost = [
        [*_row(group, run)[:SHORT], Cell(run.detail or NOTHING, long=True)]
        for group in view.groups
        for run in group.left_out
    ]
    body = ""
    if lost:
        body = html.paragraph(WHY) + html.table([*COLUMNS[:SHORT], "Why"], lost, SHORT + 1)
    table = html.table(COLUMNS, rows, len(COLUMNS))
    return Chapter("runs", "Runs", body + html.folded(f"All {counted(len(rows), 'run')}", table))


def _row(group: Group, run: RunResults) -> list[Cell]:
    settings = run.settings
    return [
        Cell(group.label),
        Cell(run.status),
        Cell(str(settings.seed), float(settings.seed)),
        Cell(f"{run.last_round} of {settings.rounds}", float(run.last_round)),
        Cell(html.exact_duration(run.seconds), run.seconds),
        Cell(data_size(run.bytes_sent), run.bytes_sent),
        Cell(run.run.folder.name),
    ]
