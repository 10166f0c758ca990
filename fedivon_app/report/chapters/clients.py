"""The chapter on clients: the global model's accuracy on each, its part in the merge, its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from fedivon_app.report import html, plots
from fedivon_app.report.axes import POINTS
from fedivon_app.report.html import Chapter
from fedivon_app.report.results import RunResults, number
from fedivon_app.report.view import PageView

BOXES = "Boxes: median, quartiles and extremes of the clients, all seeds together."


@dataclass(frozen=True, eq=False)
class ByClient:
    """A number of each client, by partition, and the level that they are seen against."""

    values: Mapping[int, float]
    level: float


@dataclass(frozen=True)
class ClientFigure:
    """What is drawn by client.

    `read` finds it in a run, and `level` names what it is seen against.
    """

    name: str
    title: str
    axis: str
    level: str
    note: str
    read: Callable[[RunResults], ByClient]


def chapter(view: PageView) -> Chapter | None:
    """Draw what the metrics have by client: dots of one run, boxes of groups."""
    drawn = []
    notes = []
    for kind in FIGURES:
        if figure := _figure(view, kind):
            drawn.append(view.pictures(f"clients-{kind.name}", figure, kind.title))
            notes.append(kind.note)
    if not drawn:
        return None
    text = " ".join(notes if view.alone else [*notes, BOXES])
    return Chapter("clients", "Clients", html.paragraph(text) + html.grid(drawn))


def _figure(view: PageView, kind: ClientFigure) -> Figure | None:
    rows = []
    for group in view.groups:
        values = [value for run in group.results for value in kind.read(run).values.values()]
        if values:
            rows.append(plots.Values(label=group.label, style=group.style, values=values))
    if not rows:
        return None
    least = POINTS if "%" in kind.axis else None
    if not view.alone:
        return plots.boxes(kind.title, kind.axis, rows, least)
    (run,) = view.results
    found = kind.read(run)
    return plots.dots(
        title=kind.title,
        y=kind.axis,
        values=found.values,
        level=found.level,
        what=kind.level,
        least=least,
    )


def _accuracies(results: RunResults) -> ByClient:
    scored = results.last_clients("gm")
    values = {
        client["partition"]: 100 * number(client.get("accuracy"))
        for client in scored.get("by_client") or ()
    }
    level = 100 * number((scored.get("mean") or {}).get("accuracy"))
    return ByClient(_finite(values), level)


def _merged(name: str, results: RunResults) -> ByClient:
    """Return the mean over the rounds of what is noted of clients when they are merged, such as
    `weight`; the level is that of equal parts."""
    given: dict[int, list[float]] = {}
    equal = []
    for record in results.rounds:
        noted = [client for client in record.get("clients") or () if name in client]
        for client in noted:
            given.setdefault(client["partition"], []).append(number(client[name]))
        if noted:
            equal.append(1 / len(noted))
    means = {partition: float(np.mean(given[partition])) for partition in sorted(given)}
    return ByClient(_finite(means), float(np.mean(equal)) if equal else np.nan)


def _losses(results: RunResults) -> ByClient:
    clients = [client for record in results.rounds for client in record.get("clients") or ()]
    last = _finite({client["partition"]: number(client.get("loss")) for client in clients})
    return ByClient(last, float(np.mean(list(last.values()))) if last else np.nan)


def _finite(values: Mapping[int, float]) -> dict[int, float]:
    return {key: value for key, value in values.items() if np.isfinite(value)}


def _errors(results: RunResults) -> ByClient:
    scored = results.last_clients("gm")
    values = {
        client["partition"]: number(client.get("rmse")) for client in scored.get("by_client") or ()
    }
    return ByClient(_finite(values), number((scored.get("mean") or {}).get("rmse")))


FIGURES = (
    ClientFigure(
        name="rmse",
        title="RMSE by client",
        axis="RMSE",
        level="all clients together",
        note="RMSE: the global model's on each client's own test part, before the client trains.",
        read=_errors,
    ),
    ClientFigure(
        name="accuracy",
        title="Accuracy by client",
        axis="accuracy %",
        level="all clients together",
        note=(
            "Accuracy: the global model's on each client's own test part, before the client trains."
        ),
        read=_accuracies,
    ),
    ClientFigure(
        name="weight",
        title="Merge weight by client",
        axis="mean weight",
        level="equal weights",
        note="Merge weight: mean over the rounds that the client took part in.",
        read=partial(_merged, "weight"),
    ),
    ClientFigure(
        name="share",
        title="Precision by client",
        axis="mean share",
        level="equal shares",
        note=(
            "Precision: the client's share of the merged precision, likewise, after the guard "
            "against large claims."
        ),
        read=partial(_merged, "precision_share"),
    ),
    ClientFigure(
        name="loss",
        title="Training loss by client",
        axis="last loss",
        level="mean",
        note="Training loss: in the last round that the client took part in.",
        read=_losses,
    ),
)
