"""The chapter with the last scores of every group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedivon_app.plurals import counted
from fedivon_app.report import html
from fedivon_app.report.grouping import Group
from fedivon_app.report.html import NOTHING, Cell, Chapter
from fedivon_app.report.results import PARTS, WAYS, number
from fedivon_app.report.view import PageView

SEEDS = "Mean ± standard deviation over seeds."
FIRST = 2  # the column of the first score


@dataclass(frozen=True)
class Scored:
    """The scores of one run after a round."""

    round: int
    values: Mapping[str, Any]


def chapter(view: PageView) -> Chapter:
    """Write a table of the last scores of every group and way.

    That of one run has its scores at the best held-out round too.
    """
    several = any(len(group.results) > 1 for group in view.groups)
    note = " ".join(text for text in (view.named_by, SEEDS if several else "") if text)
    body = html.paragraph(note) if note else ""
    tables = {part: _rows(view, part) for part in PARTS if _is_scored_on(view, part)}
    if not tables:
        body += html.paragraph("No round was scored.")
    elif view.alone:
        body += html.table(_heads(view), [row for rows in tables.values() for row in rows], FIRST)
    else:
        for part, rows in tables.items():
            body += f"<h3>On the {PARTS[part]}</h3>" + html.table(_heads(view), rows, FIRST)
    return Chapter("scores", "Scores", body)


def _is_scored_on(view: PageView, part: str) -> bool:
    return any(one.scores(part, way) for one in view.results for way in WAYS)


def _heads(view: PageView) -> list[str]:
    headings = [score.heading for score in view.scores.values()]
    if view.alone:
        return ["Scored on", "Prediction", *headings, "Round"]
    return ["Group", "Prediction", *headings, "Runs", "Round"]


def _rows(view: PageView, part: str) -> list[list[Cell]]:
    """Return the rows of a part of the data, with the best scores on each data set marked."""
    rows: list[list[Cell]] = []
    alike = []
    for group in view.groups:
        own = _rows_of_group(view, group, part)
        rows += own
        alike += [(group.settings.data.source, group.settings.data.path)] * len(own)
    for column, score in enumerate(view.scores.values(), FIRST):
        rows = html.mark_best(rows, column, high=score.higher_is_better, alike=alike)
    return rows


def _rows_of_group(view: PageView, group: Group, part: str) -> list[list[Cell]]:
    rows = []
    first = Cell(PARTS[part] if view.alone else group.label)
    for way in reversed(WAYS):
        lasts = []
        for one in group.results:
            if by_round := one.scores(part, way):
                last = next(reversed(by_round))
                lasts.append(Scored(last, by_round[last]))
        if lasts:
            rows.append([first, Cell(_how(lasts, way)), *_numbers(view, lasts)])
        best = _best(group, part, way) if view.alone else None
        if best and best.round not in [one.round for one in lasts]:
            how = Cell(f"{_how([best], way)}, best held-out round")
            rows.append([first, how, *_numbers(view, [best])])
    if not rows and not view.alone:
        why = "no scores" if group.results else group.left_out[0].status
        blank = [Cell(NOTHING)] * len(view.scores)
        rows.append([first, Cell(why), *blank, Cell("0", 0.0), Cell(NOTHING)])
    return rows


def _best(group: Group, part: str, way: str) -> Scored | None:
    """Return the scores of a lone run at its best held-out round."""
    best = (group.results[0].summary.get("best") or {}) if group.results else {}
    values = ((best.get("gm") or {}).get(part) or {}).get(way)
    return Scored(best["round"], values) if values else None


def _how(scored: Sequence[Scored], way: str) -> str:
    samples = sorted({one.values["samples"] for one in scored if one.values.get("samples")})
    if len(samples) == 1:
        return f"MC, {counted(samples[0], 'sample')}"
    return f"MC, {'/'.join(map(str, samples))} samples" if samples else WAYS[way]


def _numbers(view: PageView, scored: Sequence[Scored]) -> list[Cell]:
    """Return the cells of the scores, of the number of runs in a comparison, and of the rounds."""
    cells = [
        html.score_cell(
            [number(one.values.get(name)) for one in scored],
            digits=score.digits,
            percent=score.percent,
        )
        for name, score in view.scores.items()
    ]
    rounds = ", ".join(map(str, sorted({one.round for one in scored})))
    runs = [] if view.alone else [Cell(str(len(scored)), float(len(scored)))]
    return [*cells, *runs, Cell(rounds, float(scored[0].round))]
