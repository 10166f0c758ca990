"""The chapter on methods under the same conditions: how accurate their models are under each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedivon_app.report import condition_plot, html
from fedivon_app.report.grouping import Group, crossed
from fedivon_app.report.html import Chapter
from fedivon_app.report.plots import Line
from fedivon_app.report.results import number
from fedivon_app.report.style import Key
from fedivon_app.report.view import PageView

NOTES = {
    "pm": "PM: mean over clients of the accuracy on their own test parts.",
    "gm": "GM: accuracy on the central test set{}.",
}
ELSEWHERE = "; of groups that were not scored on it, the mean over clients on their own test parts"
BARS = "Bars: one standard deviation over seeds."


def chapter(view: PageView) -> Chapter | None:
    """Draw the accuracy of personal (PM) and global (GM) models by condition, a line a method.

    It is None where nothing is crossed.
    """
    crossing = crossed(view.groups)
    if crossing is None:
        return None
    keys = [Key(method, style) for style, method in enumerate(crossing.methods)]
    figures = []
    notes = ["At the models' means, when they were last scored."]
    bars = False
    for whose, note in NOTES.items():
        lines = [_line(key, crossing.methods[key.label], whose) for key in keys]
        if drawn := [line for line in lines if np.isfinite(line.y).any()]:
            title = f"{whose.upper()} accuracy by setting"
            figure = condition_plot.by_condition(
                title=title, y="accuracy %", conditions=crossing.conditions, lines=drawn
            )
            figures.append(
                view.pictures(name=f"{whose}-by-setting", figure=figure, title=title, legend=keys)
            )
            notes.append(note.format(ELSEWHERE if any(map(_elsewhere, view.groups)) else ""))
            bars = bars or any(line.deviation is not None for line in drawn)
    if not figures:
        return None
    text = " ".join([*notes, *([BARS] if bars else [])])
    body = html.paragraph(text) + html.legend(keys) + html.grid(figures)
    return Chapter("crossing", "Accuracy by setting", body)


def _line(key: Key, cells: Sequence[Group | None], whose: str) -> Line:
    """Return mean and sample standard deviation (n - 1) over seeds, in %.

    They are NaN where there is no value, or one alone.
    """
    found = [100 * np.array(_accuracies(group, whose) if group else []) for group in cells]
    y = np.array([values.mean() if len(values) else np.nan for values in found])
    deviation = np.array([values.std(ddof=1) if len(values) > 1 else np.nan for values in found])
    return Line(
        label=key.label,
        style=key.style,
        x=np.arange(len(cells), dtype=float),
        y=y,
        deviation=deviation if np.isfinite(deviation).any() else None,
    )


def _accuracies(group: Group, whose: str) -> list[float]:
    """Return a value a seed; those that are no number are left out."""
    values = _central(group) if whose == "gm" else []
    return values or _over_clients(group, whose)


def _central(group: Group) -> list[float]:
    scored = [scores for run in group.results if (scores := run.scores("test", "mean"))]
    return _numbers([list(scores.values())[-1].get("accuracy") for scores in scored])


def _over_clients(group: Group, whose: str) -> list[float]:
    spreads = [run.last_clients(whose).get("over_clients") or {} for run in group.results]
    ways = [spread.get("mean") or {} for spread in spreads]
    return _numbers([way.get("mean") for way in ways if "score" not in way])


def _elsewhere(group: Group) -> bool:
    return not _central(group) and bool(_over_clients(group, "gm"))


def _numbers(values: Sequence[object]) -> list[float]:
    return [value for value in map(number, values) if np.isfinite(value)]
