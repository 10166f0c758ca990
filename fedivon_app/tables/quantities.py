"""What can stand in a cell of a table: the scores, and what a run costs.

A quantity is read off an outcome. The scores are those of core/scores.py; the others have their
names here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedivon_app.core.registry import Registry
from fedivon_app.core.scores import SCORES
from fedivon_app.tables.outcome import Curve, Outcome

if TYPE_CHECKING:
    from fedivon_app.tables.table_file import Cell

HALF = 0.5


@dataclass(frozen=True)
class Quantity:
    """What a column shows: how it is read off a run, and how it is written.

    Ours is shown in percent where `percent` says so, as the papers do.
    """

    label: str
    higher_is_better: bool
    read: Callable[[Outcome, Cell], float | None]
    percent: bool = False
    digits: int = 3

    def text(self, value: float) -> str:
        """Return a value, in the unit of the table, as tables show it."""
        return f"{value:.{self.digits}f}"


def way_of(outcome: Outcome, cell: Cell) -> str:
    """Return the way in which the cell asks the model: the mean where there are no samples."""
    model = cell.model or "gm"
    wanted = cell.way or "mean"
    there = {name.split(".")[2] for name in outcome.scores if name.startswith(f"{model}.")}
    return wanted if wanted in there else "mean"


def curve_of(outcome: Outcome, cell: Cell, score: str) -> Curve:
    """Return the score that the cell speaks of, by round."""
    model = cell.model or "gm"
    over = cell.over or ("test" if model == "gm" else "clients")
    way = way_of(outcome, cell)
    found = outcome.curve(model, over, way, score)
    # The mean over the clients is kept of the accuracy alone.
    return found or (outcome.curve(model, "pooled", way, score) if over == "clients" else {})


def _score(name: str) -> Callable[[Outcome, Cell], float | None]:
    def read(outcome: Outcome, cell: Cell) -> float | None:
        """The mean over the rounds that the cell names, or the last one's."""
        curve = curve_of(outcome, cell, name)
        wanted = [r if r > 0 else outcome.rounds + 1 + r for r in cell.rounds or (-1,)]
        values = [curve[r] for r in wanted if r in curve]
        return float(np.mean(values)) if values and len(values) == len(wanted) else None

    return read


def _detection(measure: str) -> Callable[[Outcome, Cell], float | None]:
    def read(outcome: Outcome, cell: Cell) -> float | None:
        return outcome.auroc.get(f"{way_of(outcome, cell)}.{measure}")

    return read


def _most_certain_half(measure: str) -> Callable[[Outcome, Cell], float | None]:
    def read(outcome: Outcome, cell: Cell) -> float | None:
        curve = outcome.retention.get(f"{way_of(outcome, cell)}.{measure}")
        if curve is None:
            return None
        return float(np.interp(HALF, outcome.retention["fractions"], curve))

    return read


def _smaller_half(outcome: Outcome, cell: Cell) -> float | None:
    """The mean accuracy of the half of the clients that has fewer examples."""
    name = f"{cell.model or 'pm'}.{way_of(outcome, cell)}"
    if name not in outcome.by_client:
        return None
    order = np.argsort(outcome.by_client["num_train"], kind="stable")
    values = np.asarray(outcome.by_client[name])[order[: max(1, len(order) // 2)]]
    return float(values.mean())


QUANTITIES: Registry[Quantity] = Registry(
    "quantity",
    {
        **{
            name: Quantity(
                label=score.heading,
                higher_is_better=score.higher_is_better,
                read=_score(name),
                percent=score.percent,
                digits=1 if score.percent else 3,
            )
            for name, score in SCORES.items()
        },
        "auroc-entropy": Quantity("AUROC", True, read=_detection("entropy")),
        "auroc-epistemic": Quantity("AUROC, epistemic", True, read=_detection("epistemic")),
        "half-by-entropy": Quantity(
            "Accuracy % of the half with the least entropy",
            True,
            read=_most_certain_half("entropy"),
            percent=True,
            digits=1,
        ),
        "half-by-epistemic": Quantity(
            "Accuracy % of the half with the least epistemic part",
            True,
            read=_most_certain_half("epistemic"),
            percent=True,
            digits=1,
        ),
        "smaller-clients": Quantity(
            "Accuracy % of the smaller half of the clients",
            True,
            read=_smaller_half,
            percent=True,
            digits=1,
        ),
        "megabytes": Quantity("MB a round", False, read=lambda o, cell: o.megabytes),
        "gigaflops": Quantity("GFLOP a round", False, read=lambda o, cell: o.gigaflops),
        "training-seconds": Quantity(
            "Training s a round", False, read=lambda o, cell: o.training_seconds
        ),
        "seconds": Quantity("s a round", False, read=lambda o, cell: o.seconds / o.rounds),
    },
    kind=Quantity,
)
