"""Plots of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fedivon_app.runs import Run

PANELS = {"accuracy": "test accuracy", "nll": "test NLL", "ece": "test ECE", "brier": "test Brier score"}
WAYS = {"mean": ("at the mean", "-"), "mc": ("Monte Carlo", "--")}


def plot_learning(runs: Sequence[Run], path: Path, names: Sequence[str] | None = None) -> bool:
    """Draws the scores of the global models on the central test set by round; False where no run has any."""
    names = names or [run.settings.strategy for run in runs]
    curves = {name: _curves(run) for name, run in zip(names, runs, strict=True)}
    if not any(curves.values()):
        return False
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    for axes, (measure, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for colour, (name, ways) in enumerate(curves.items()):
            for way, points in ways.items():
                how, line = WAYS[way]
                label = f"{name}, {how}" if len(ways) > 1 else name
                rounds, scores = zip(*points, strict=True)
                style = {"color": f"C{colour}", "linestyle": line, "marker": "o", "markersize": 3}
                axes.plot(rounds, [score[measure] for score in scores], label=label, **style)
        axes.set(title=title, xlabel="round")
        axes.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    figure.suptitle(", ".join(dict.fromkeys(f"{run.settings.experiment}, seed {run.settings.seed}" for run in runs)))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return True


def _curves(run: Run) -> dict[str, list[tuple[int, dict[str, float]]]]:
    scored = [(record["round"], record["gm"]["test"]) for record in run.metrics() if "test" in record.get("gm", {})]
    curves = {way: [(number, scores[way]) for number, scores in scored if way in scores] for way in WAYS}
    return {way: points for way, points in curves.items() if points}
