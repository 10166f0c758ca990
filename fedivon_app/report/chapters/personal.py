"""The chapter on personal models (PM): beside the global one (GM), client by client."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.figure import Figure

from fedivon_app.core.scores import NUMBER_SCORES, SCORES, Score, headline
from fedivon_app.report import html, plots
from fedivon_app.report.grouping import Group
from fedivon_app.report.html import NOTHING, Cell, Chapter
from fedivon_app.report.results import RunResults, number
from fedivon_app.report.view import PageView

MODELS = {"pm": "PM, after local training", "gm": "GM, before local training"}
SPREADS = {
    "mean": "Mean over clients",
    "weighted": "By data size",
    "std": "Std",
    "worst_decile": "Worst tenth",
}
# What says how well a model is calibrated, beside the score by which clients are compared.
CALIBRATION = {"accuracy": SCORES["ece"], "rmse": NUMBER_SCORES["coverage_error"]}
FIRST = 2  # the column of the first number
NOTE = (
    "Every client's models on its own test part, at their means, when it was last scored. Mean, "
    "standard deviation and the mean of the worst tenth count every client once; calibration is of "
    "all clients' examples together."
)

Point = tuple[float, float]


def chapter(view: PageView) -> Chapter | None:
    """Compare personal models with the global one, and with what they owe to the amount of data."""
    if not any(run.last_clients("pm") for run in view.results):
        return None
    figures = []
    score = _score(view)
    axis = "accuracy %" if score.percent else score.label
    for name, title, x, pairs in (
        ("personal-by-client", "PM against GM, by client", f"GM {axis}", _models),
        ("personal-by-size", "PM against local data", "training examples", _sizes),
    ):
        if clouds := _clouds(view, pairs):
            by_size = pairs is _sizes
            figure = plots.scatter(
                title, x, f"PM {axis}", clouds, diagonal=not by_size, log=by_size
            )
            figures.append(_picture(view, name, figure, title))
    legend = html.legend([group.key for group in view.groups])
    body = html.paragraph(NOTE) + _table(view) + legend + html.grid(figures)
    return Chapter("personal", "Personal models", body)


def _picture(view: PageView, name: str, figure: Figure, title: str) -> str:
    keys = [group.key for group in view.groups]
    return view.pictures(name=name, figure=figure, title=title, legend=keys)


def _table(view: PageView) -> str:
    score = _score(view)
    rows = [row for group in view.groups for row in _rows(group, score)]
    alike = [row[1].text for row in rows]
    for column, name in enumerate(SPREADS, FIRST):
        high = name != "std" and score.higher_is_better
        rows = html.mark_best(rows, column, high=high, alike=alike)
    unit = " %" if score.percent else ""
    spreads = [f"{text}{unit if name != 'std' else ''}" for name, text in SPREADS.items()]
    heads = ["Group", "Model", *spreads, CALIBRATION[score.name].label, "Clients"]
    first = 1 if len(view.groups) == 1 else 0
    return html.table(heads[first:], [row[first:] for row in rows], FIRST - first)


def _score(view: PageView) -> Score:
    """The score by which clients are compared."""
    scored = [run.last_clients("pm").get("mean") or {} for run in view.results]
    return headline(next((one for one in scored if one), {}))


def _rows(group: Group, accuracy: Score) -> list[list[Cell]]:
    calibration = CALIBRATION[accuracy.name]
    rows = []
    for whose, words in MODELS.items():
        scored = [found for run in group.results if (found := run.last_clients(whose))]
        if not scored:
            continue
        spreads = [(one.get("over_clients") or {}).get("mean") or {} for one in scored]
        cells = [
            html.score_cell(
                [number(spread.get(name)) for spread in spreads],
                digits=accuracy.digits,
                percent=accuracy.percent,
            )
            for name in SPREADS
        ]
        ece = html.score_cell(
            [number((one.get("mean") or {}).get(calibration.name)) for one in scored],
            digits=calibration.digits,
        )
        rows.append([Cell(group.label), Cell(words), *cells, ece, _clients(spreads)])
    return rows


def _clients(spreads: list[dict[str, float]]) -> Cell:
    counts = sorted({int(spread.get("clients") or 0) for spread in spreads})
    if not counts:
        return Cell(NOTHING, math.nan)
    return Cell("/".join(map(str, counts)), float(counts[-1]))


def _clouds(view: PageView, points: Callable[[RunResults], list[Point]]) -> list[plots.Cloud]:
    """Return the dots of every group that has any."""
    clouds = []
    for group in view.groups:
        found = np.array([point for run in group.results for point in points(run)]).reshape(-1, 2)
        if len(found):
            clouds.append(
                plots.Cloud(label=group.label, style=group.style, x=found[:, 0], y=found[:, 1])
            )
    return clouds


def _models(results: RunResults) -> list[Point]:
    own = _accuracies(results, "pm")
    common = _accuracies(results, "gm")
    return [(common[partition], own[partition]) for partition in own if partition in common]


def _accuracies(results: RunResults, whose: str) -> dict[int, float]:
    return {
        client["partition"]: _shown(client)
        for client in results.last_clients(whose).get("by_client") or ()
    }


def _shown(client: Mapping[str, object]) -> float:
    score = headline(client)
    return (100 if score.percent else 1) * number(client.get(score.name))


def _sizes(results: RunResults) -> list[Point]:
    return [
        (float(client["num_train"]), _shown(client))
        for client in results.last_clients("pm").get("by_client") or ()
        if client.get("num_train")
    ]
