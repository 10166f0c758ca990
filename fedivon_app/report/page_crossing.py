"""The page's section on methods under the same conditions: how accurate their models are under each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedivon_app.report import html, plots
from fedivon_app.report.grouping import Group, crossed
from fedivon_app.report.html import Section, number

NOTES = {
    "pm": "PM: mean over clients of the accuracy on their own test parts.",
    "gm": "GM: accuracy on the central test set{}.",
}
ELSEWHERE = "; of groups that were not scored on it, the mean over clients on their own test parts"
BARS = "Bars: one standard deviation over seeds."


def by_setting(groups: Sequence[Group], pictures: plots.Pictures) -> Section | None:
    """Accuracy of personal (PM) and global (GM) models by condition, a line a method; None where nothing is crossed."""
    crossing = crossed(groups)
    if crossing is None:
        return None
    keys = [(method, style) for style, method in enumerate(crossing.methods)]
    figures = []
    notes = ["At the models' means, when they were last scored."]
    bars = False
    for whose, note in NOTES.items():
        lines = [_line(method, style, crossing.methods[method], whose) for method, style in keys]
        if drawn := [line for line in lines if np.isfinite(line.y).any()]:
            title = f"{whose.upper()} accuracy by setting"
            figure = plots.by_condition(title, "accuracy %", crossing.conditions, drawn)
            figures.append(pictures(f"{whose}-by-setting", figure, title, keys))
            notes.append(note.format(ELSEWHERE if any(map(_elsewhere, groups)) else ""))
            bars = bars or any(line.deviation is not None for line in drawn)
    text = " ".join([*notes, *([BARS] if bars else [])])
    body = html.paragraph(text) + html.legend(keys) + html.grid(figures)
    return Section("crossing", "Accuracy by setting", body) if figures else None


def _line(method: str, style: int, cells: Sequence[Group | None], whose: str) -> plots.Line:
    """Mean and sample standard deviation (n - 1) over seeds, in %; NaN where there is no value, or one alone."""
    found = [100 * np.array(_accuracies(group, whose) if group else []) for group in cells]
    y = np.array([values.mean() if len(values) else np.nan for values in found])
    deviation = np.array([values.std(ddof=1) if len(values) > 1 else np.nan for values in found])
    places = np.arange(len(cells), dtype=float)
    return plots.Line(method, style, places, y, deviation if np.isfinite(deviation).any() else None)


def _accuracies(group: Group, whose: str) -> list[float]:
    """A value a seed; those that are no number are left out."""
    values = _central(group) if whose == "gm" else []
    return values or _over_clients(group, whose)


def _central(group: Group) -> list[float]:
    scored = [scores for outcome in group.outcomes if (scores := outcome.scores("test", "mean"))]
    return _numbers([list(scores.values())[-1].get("accuracy") for scores in scored])


def _over_clients(group: Group, whose: str) -> list[float]:
    spreads = [outcome.last_clients(whose).get("over_clients") or {} for outcome in group.outcomes]
    return _numbers([(spread.get("mean") or {}).get("mean") for spread in spreads])


def _elsewhere(group: Group) -> bool:
    return not _central(group) and bool(_over_clients(group, "gm"))


def _numbers(values: Sequence[object]) -> list[float]:
    return [value for value in map(number, values) if np.isfinite(value)]
