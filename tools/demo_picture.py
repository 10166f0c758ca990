"""Draw the README's picture of the demo: what FedAvg, FedIvon, and FedIvon's clients that are
averaged have learned after each round.

    fedivon run few-rounds --strategy fedavg fedivon --seed $SEEDS --runs demo
    fedivon run few-rounds --strategy fedivon --seed $SEEDS --set merge.rule=nwa --runs demo
    python tools/demo_picture.py demo            # writes docs/demo.png

A line is the mean over the runs of one kind, at the mean of the global model, and a band their
standard deviation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedivon_app.core.errors import SettingsError
from fedivon_app.report.panel_plot import Panel, panels_figure
from fedivon_app.report.plots import Line
from fedivon_app.report.style import Key
from fedivon_app.runs.catalogue import find
from fedivon_app.runs.folder import Run
from fedivon_app.tables.outcome import Outcome, outcome_of

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "demo.png"
KINDS = {  # by method and rule
    ("fedavg", "nwa"): Key("FedAvg", 0),
    ("fedivon", "nwa"): Key("FedIvon's clients, merged as plain averages", 1),
    ("fedivon", "product"): Key("FedIvon", 2),
}
PANELS = {
    "accuracy": ("Accuracy", "test digits, %", 100.0),
    "nll": ("NLL", "test digits", 1.0),
    "ece": ("ECE", "test digits", 1.0),
}


def draw(runs: Path) -> Figure:
    """Return the picture of the runs in a folder."""
    outcomes: dict[tuple[str, str], list[Outcome]] = {kind: [] for kind in KINDS}
    for found in find([runs]):
        run = Run.open(found.folder)
        kind = (run.settings.strategy, run.settings.merge.rule)
        if kind in outcomes:
            outcomes[kind].append(outcome_of(run))
    missing = [key.label for kind, key in KINDS.items() if not outcomes[kind]]
    if missing:
        raise SettingsError(f"{runs} has no runs of: {', '.join(missing)}")
    panels = []
    for score, (title, unit, factor) in PANELS.items():
        lines = [line(key, outcomes[kind], score, factor) for kind, key in KINDS.items()]
        panels.append(Panel(title, "round", unit, lines))
    return panels_figure(panels)


def line(key: Key, runs: list[Outcome], score: str, factor: float) -> Line:
    """Return a score by round over several runs."""
    curves = [run.scores[f"gm.test.mean.{score}"] for run in runs]
    rounds = sorted(curves[0])
    values = [[factor * curve[number] for number in rounds] for curve in curves]
    return Line.mean(key, np.array(rounds), values)


if __name__ == "__main__":
    draw(Path(sys.argv[1])).savefig(PICTURE, dpi=150, metadata={"Software": None})
    print(PICTURE)
