"""The chapter on privacy: what each client has spent of its epsilon, round by round."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fedivon_app.report import html, plots
from fedivon_app.report.html import Chapter
from fedivon_app.report.results import RunResults, number
from fedivon_app.report.view import PageView

NOTE = (
    "Epsilon: what each client has spent of the privacy of its examples in the run, as the client "
    "itself counts it. The smaller it is, the less a reply depends on any one example."
)
BY_ROUND = " By round: a line for each client, by the rounds that it took part in."


def chapter(view: PageView) -> Chapter | None:
    """Draw what clients came to in the end and, of a single run, by round."""
    titles = {"epsilon": "Epsilon by client", "epsilon-by-round": "Epsilon by round"}
    figures = {"epsilon": _last(view), "epsilon-by-round": _by_round(view) if view.alone else None}
    drawn = [
        view.pictures(name, figure, titles[name])
        for name, figure in figures.items()
        if figure is not None
    ]
    if not drawn:
        return None
    note = NOTE + (BY_ROUND if view.alone else "")
    return Chapter("privacy", "Privacy", html.paragraph(note) + html.grid(drawn))


def spent(results: RunResults) -> dict[int, dict[int, float]]:
    """Return the epsilon of each client, by partition, after each round that it took part in."""
    found: dict[int, dict[int, float]] = {}
    for record in results.rounds:
        for client in record.get("clients") or ():
            if "epsilon" in client:
                by_round = found.setdefault(client["partition"], {})
                by_round[record["round"]] = number(client["epsilon"])
    return dict(sorted(found.items()))


def _last(view: PageView) -> Figure | None:
    ends = [
        [max(by_round.values()) for run in group.results for by_round in spent(run).values()]
        for group in view.groups
    ]
    if not any(ends):
        return None
    if not view.alone:
        rows = [
            plots.Values(label=group.label, style=group.style, values=values)
            for group, values in zip(view.groups, ends, strict=True)
            if values
        ]
        return plots.boxes("Epsilon by client", "epsilon in the end", rows)
    (run,) = view.results
    values = {partition: max(by_round.values()) for partition, by_round in spent(run).items()}
    return plots.dots(
        title="Epsilon by client",
        y="epsilon in the end",
        values=values,
        level=float(np.mean(list(values.values()))),
        what="mean",
    )


def _by_round(view: PageView) -> Figure | None:
    (run,) = view.results
    lines = [
        plots.Line(label="", style=0, x=np.array(list(track)), y=np.array(list(track.values())))
        for track in spent(run).values()
    ]
    return plots.curves("Epsilon by round", "round", "epsilon", lines) if lines else None
