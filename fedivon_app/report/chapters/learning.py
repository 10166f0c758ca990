"""The chapter with the learning curves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fedivon_app.core.scores import Score
from fedivon_app.core.text import Unit, data_unit
from fedivon_app.report import html, plots
from fedivon_app.report.axes import POINTS
from fedivon_app.report.html import Chapter
from fedivon_app.report.results import PARTS, RunResults, number
from fedivon_app.report.tracks import line_by_bytes, line_by_round
from fedivon_app.report.view import PageView, Predictor, bands_note, keys_of

# In tables only: what the Brier score says, the curves of accuracy and calibration say apart.
NOT_DRAWN = ("brier",)


def chapter(view: PageView) -> Chapter | None:
    """Draw the scores on the first part of the data that has any, by rounds and by bytes."""
    found = {part: _scored_on(view, part) for part in PARTS}
    part = next((part for part, predictors in found.items() if predictors), None)
    if part is None:
        return None
    predictors = found[part]
    unit = data_unit(max(run.bytes_sent for one in predictors for run in one.results))
    sides = {
        f"by {side}": html.grid(_figures(view, predictors, part=part, side=side, unit=unit))
        for side in ("rounds", "bytes")
    }
    note = f"Scores on the {PARTS[part]}. {view.ways_note(predictors)}{bands_note(predictors)}"
    legend = html.legend(keys_of(predictors))
    body = html.paragraph(note) + legend + html.switch("axis", sides)
    return Chapter("curves", "Learning curves", body)


def _scored_on(view: PageView, part: str) -> list[Predictor]:
    return view.predictors(lambda results, way: len(results.scores(part, way)))


def _figures(
    view: PageView, predictors: Sequence[Predictor], *, part: str, side: str, unit: Unit
) -> list[str]:
    drawn = []
    for name, score in view.scores.items():
        if name in NOT_DRAWN:
            continue
        lines = []
        for one in predictors:
            tracks = [_track(run, part, one.way, score) for run in one.results]
            if side == "rounds":
                lines.append(line_by_round(one, tracks))
            else:
                lines.append(line_by_bytes(one, tracks, unit))
        figure = plots.curves(
            title=score.heading,
            x="round" if side == "rounds" else f"{unit.name} sent, both directions",
            y="",
            lines=lines,
            log_x=side == "bytes" and plots.far_apart(lines),
            least=POINTS if score.percent else None,
        )
        drawn.append(
            view.pictures(
                name=f"{_file_name(name)}-{side}",
                figure=figure,
                title=f"{score.heading} against {side}",
                legend=keys_of(predictors),
            )
        )
    return drawn


def _file_name(score: str) -> str:
    return re.sub(r"[^\w-]+", "-", score, flags=re.ASCII)


def _track(results: RunResults, part: str, way: str, score: Score) -> Mapping[int, float]:
    factor = 100 if score.percent else 1
    return {
        server_round: factor * number(values.get(score.name))
        for server_round, values in results.scores(part, way).items()
    }
