"""The page's section on personal models (PM): beside the global one (GM), client by client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedivon_app.report import html, plots
from fedivon_app.report.grouping import Group, Outcome
from fedivon_app.report.html import NOTHING, Cell, Section, number

MODELS = {"pm": "PM, after local training", "gm": "GM, before local training"}
SPREADS = {
    "mean": "Mean over clients %",
    "weighted": "By data size %",
    "std": "Std",
    "worst_decile": "Worst tenth %",
}
NOTE = (
    "Every client's models on its own test part, at their means, when it was last scored. Mean, standard deviation "
    "and the mean of the worst tenth count every client once; ECE is of all clients' examples together."
)


def personal(groups: Sequence[Group], pictures: plots.Pictures) -> Section | None:
    """How personal models compare with the global one, and what they owe to the amount of data."""
    if not any(outcome.last_clients("pm") for group in groups for outcome in group.outcomes):
        return None
    heads = ["Group", "Model", *SPREADS.values(), "ECE", "Clients"]
    rows = [row for group in groups for row in _rows(group)]
    for column, name in enumerate(SPREADS, 2):
        html.mark_best(rows, column, name != "std", [row[1].text for row in rows])
    first = 1 if len(groups) == 1 else 0
    body = html.paragraph(NOTE) + html.table(
        heads[first:], [row[first:] for row in rows], 2 - first
    )
    keys = [(group.label, group.style) for group in groups]
    figures = []
    for name, title, x, y, pairs, options in (
        (
            "personal-by-client",
            "PM against GM, by client",
            "GM accuracy %",
            "PM accuracy %",
            _models,
            {"diagonal": True},
        ),
        (
            "personal-by-size",
            "PM against local data",
            "training examples",
            "PM accuracy %",
            _sizes,
            {"log": True},
        ),
    ):
        clouds = [
            (
                g.label,
                g.style,
                *np.array([p for o in g.outcomes for p in pairs(o)]).reshape(-1, 2).T,
            )
            for g in groups
        ]
        if drawn := [cloud for cloud in clouds if len(cloud[2])]:
            figures.append(
                pictures(name, plots.scatter(title, x, y, drawn, **options), title, keys)
            )
    return Section("personal", "Personal models", body + html.legend(keys) + html.grid(figures))


def _rows(group: Group) -> list[list[Cell]]:
    rows = []
    for whose, words in MODELS.items():
        scored = [found for outcome in group.outcomes if (found := outcome.last_clients(whose))]
        if not scored:
            continue
        spreads = [(one.get("over_clients") or {}).get("mean") or {} for one in scored]
        cells = [
            html.score([number(spread.get(name)) for spread in spreads], True) for name in SPREADS
        ]
        eces = html.score([number((one.get("mean") or {}).get("ece")) for one in scored], False)
        counts = sorted({int(spread.get("clients") or 0) for spread in spreads})
        clients = Cell(
            "/".join(map(str, counts)) if counts else NOTHING,
            float(counts[-1]) if counts else np.nan,
        )
        rows.append([Cell(group.label), Cell(words), *cells, eces, clients])
    return rows


def _accuracies(outcome: Outcome, whose: str) -> dict[int, float]:
    return {
        c["partition"]: 100 * number(c.get("accuracy"))
        for c in outcome.last_clients(whose).get("by_client") or ()
    }


def _models(outcome: Outcome) -> list[tuple[float, float]]:
    own = _accuracies(outcome, "pm")
    common = _accuracies(outcome, "gm")
    return [(common[partition], own[partition]) for partition in own if partition in common]


def _sizes(outcome: Outcome) -> list[tuple[float, float]]:
    clients = outcome.last_clients("pm").get("by_client") or ()
    return [
        (float(c["num_train"]), 100 * number(c.get("accuracy")))
        for c in clients
        if c.get("num_train")
    ]
