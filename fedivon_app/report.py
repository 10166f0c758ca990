"""Plots of a run."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from fedivon_app.runs import Run

PANELS = {"accuracy": "test accuracy", "nll": "test NLL", "ece": "test ECE"}
WAYS = {"mean": "at the mean", "mc": "Monte Carlo"}


def plot_learning(run: Run) -> Path | None:
    """plots/learning.png: scores of the global model on the central test set by round; None where there are none."""
    scored = [(r["round"], r["gm"]["test"]) for r in run.metrics() if "test" in r.get("gm", {})]
    if not scored:
        return None
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    best = run.best()
    for axes, (measure, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for way, label in WAYS.items():
            points = [(server_round, scores[way][measure]) for server_round, scores in scored if way in scores]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
        if best:
            axes.axvline(best["round"], color="grey", linestyle=":", label="best held-out")
        axes.set(title=title, xlabel="round")
        axes.grid(alpha=0.3)
    figure.axes[0].legend()
    settings = run.settings
    figure.suptitle(f"{settings.experiment}, {settings.strategy}, seed {settings.seed}")
    path = run.folder / "plots" / "learning.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
