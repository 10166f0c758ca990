"""`fedivon illustrate`: BayesADMM's Figures 3a, 3b and 4 (Moellenhoff et al. 2025), computed anew and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fedivon_app.core.dense import Dense
from fedivon_app.core.regression import SoftmaxRegression
from fedivon_app.figures.small_problems import (
    DIAGONAL,
    FULL,
    STRETCH,
    VARIANTS,
    DiagonalSoftmax,
    Show,
    by_pairs,
    federate,
    negative_elbo,
    reduced,
    ridge_distances,
    toy_rounds,
    trace,
    turned,
    two_clients,
)
from fedivon_app.report import plots


@plots.styled
def figure_3a(source: str, show: Show, rounds: int = 8, scale: float = 1.0) -> Figure:
    """The negative ELBO by round of logistic regression, five clients with two classes each.

    The paper says full covariances and VON to convergence (appendix F.1); its script has diagonal ones, and clients
    that take 1250 small steps of IVON. Here both families are drawn, with clients that go a stretch of the way: to
    convergence, BayesADMM's clients soon have no solution (see `dense.solve_client`).
    """
    panels = (
        (
            "Diagonal covariance (the authors' script)",
            DIAGONAL,
            DiagonalSoftmax,
            14,
            500,
            4,
            STRETCH,
            (0.05, 400),
        ),
        (
            "Full covariance (the paper's text)",
            FULL,
            SoftmaxRegression,
            5,
            120,
            8,
            {"step": 0.1, "most": 10},
            (0.5, 40),
        ),
    )
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    for axes, (title, family, kind, side, count, draws, von, (step, most)) in zip(
        figure.subplots(1, 2), panels, strict=True
    ):
        x, labels = reduced(source, side, round(scale * count))
        losses = by_pairs(
            x, labels, labels, lambda a, b, kind=kind, draws=draws: kind(a, b, 10, draws)
        )
        size = 10 * x.shape[1]
        delta = 10.0
        prior = family.prior(size, delta)
        score = lambda q, losses=losses, prior=prior: negative_elbo(q, losses, prior)  # noqa: E731
        for style, variant in enumerate(VARIANTS):
            values, end = trace(
                federate(family, losses, variant, delta, size, **von), rounds, score
            )
            show(
                f"3a, {title.split()[0].lower()}, {variant.name}: {' '.join(f'{v:.0f}' for v in values)} {end}".strip()
            )
            _curve(axes, values, style, bool(end))
        whole = kind(x, labels, 10, draws)
        best = score(
            family.solve(
                whole, prior, (0 * prior.mean, 0 * prior.precision), 1.0, step=step, most=most
            )
        )
        show(f"3a, {title.split()[0].lower()}, all data at once: {best:.0f}")
        axes.axhline(best, color=plots.INK, linewidth=1.2, linestyle=(0, (5, 3)))
        axes.set(
            title=title, xlabel=f"round ({x.shape[1]} pixels, {len(x)} pictures)", yscale="log"
        )
        axes.yaxis.set_major_locator(
            LogLocator(subs=(1, 2, 5)) if axes.get_ylim()[1] > 5 * best else MaxNLocator(5)
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_minor_locator(NullLocator())
    figure.axes[0].set_ylabel("negative ELBO")
    handles = [*map(plots.handle, range(len(VARIANTS))), figure.axes[0].lines[-1]]
    labels = [*(variant.name for variant in VARIANTS), "all data at once"]
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(
        f"Logistic regression on {source}, five clients with two classes each, prior precision 10\n"
        "A round's client: 40 VON steps of 1/40 (full: 10 of 1/10) from the server's posterior, not to convergence",
        fontsize=10,
    )
    return figure


def figure_3b(source: str, show: Show, rounds: int = 20) -> Figure:
    """How far the server's mean is from the pooled ridge solution, by round; others than BayesADMM at their best."""
    curves = ridge_distances(source, rounds, show)
    lines = [
        plots.Line(name, i, np.arange(1, len(y) + 1), np.array(y))
        for i, (name, y) in enumerate(curves.items())
    ]
    title = f"Ridge regression on {source}, five clients"
    figure = plots.curves(title, "round", "distance to the pooled mean, relative", lines, log=True)
    figure.set_size_inches(6, 3.8)
    figure.axes[0].legend(
        [plots.handle(line.style) for line in lines],
        list(curves),
        frameon=False,
        loc="center right",
    )
    return figure


def _curve(axes: Axes, values: Sequence[float], style: int, ended: bool) -> None:
    """By round; with a cross behind its last round where the method diverged."""
    colour = plots.COLOURS[style]
    axes.plot(range(1, len(values) + 1), values, color=colour, marker="o")
    if ended and values:
        axes.plot(len(values), values[-1], color=colour, marker="X", markersize=9)


@plots.styled
def figure_4(show: Show, rounds: int = 5) -> Figure:
    """Two clients in the plane, one with an outlier: the lines that part the classes, round by round."""
    data = two_clients()
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    shades = [str(shade) for shade in np.linspace(0.75, 0.0, rounds)]
    found = toy_rounds(data, rounds)
    mode = found["Federated ADMM"][1]
    for row, (name, (history, pooled)) in zip(grid, found.items(), strict=True):
        for column, (axes, who) in enumerate(
            zip(row, ("server", "client 1", "client 2"), strict=True)
        ):
            for k in (0, 1) if column == 0 else (column - 1,):
                for label, marker in enumerate("os"):
                    own = data[k][0][data[k][1] == label]
                    axes.scatter(
                        *own.T,
                        s=20,
                        marker=marker,
                        color=plots.COLOURS[label],
                        linewidth=0,
                        zorder=3,
                    )
            if column < 2:
                axes.scatter(
                    *data[0][0][-1], s=150, facecolor="none", edgecolor=plots.INK, zorder=4
                )
            states = [one[column] for one in history]
            if isinstance(states[-1], Dense):
                for draw in states[-1].samples(np.random.default_rng(1).standard_normal((30, 3))):
                    _line(axes, draw, color="0.6", alpha=0.35, linewidth=0.6)
            thetas = [state.mean if isinstance(state, Dense) else state for state in states]
            for theta, shade in zip(thetas, shades, strict=True):
                _line(axes, theta, color=shade, linewidth=2)
            _line(axes, pooled, color=plots.COLOURS[2], linewidth=1.6, linestyle=(0, (4, 3)))
            off = [turned(theta, pooled) for theta in thetas]
            words = " ".join(f"{angle:.0f}°" for angle in off)
            axes.set(xlim=(-6, 6), ylim=(-3.6, 3.6), xticks=[], yticks=[], title=f"{name}, {who}")
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2}
            axes.text(5.8, 3.3, f"off by {words}", ha="right", va="top", fontsize=10, bbox=box)
            show(f"4, {name}, {who}: off the pooled line by {words}")
    handles = [Line2D([], [], color=shade, linewidth=2) for shade in shades]
    handles += [Line2D([], [], color=plots.COLOURS[2], linestyle=(0, (4, 3)))]
    labels = [*(f"round {number + 1}" for number in range(rounds)), "all data at once"]
    figure.legend(handles, labels, loc="outside lower center", ncols=rounds + 1, frameon=False)
    without = toy_rounds([(data[0][0][:-1], data[0][1][:-1]), data[1]], 0)["Federated ADMM"][1]
    turn = turned(without, mode)
    figure.suptitle(
        f"Two clients, delta = rho = 0.2; the outlier (ring) turns the line of all data by {turn:.0f}°\n"
        "Off by: from the line of all data in rounds 1, 2, ...; thin lines: draws of the last round's posterior",
        fontsize=10,
    )
    return figure


def _line(axes: Axes, theta: np.ndarray, **options: Any) -> None:
    """Where a x + b y + c = 0."""
    a, b, c = theta / np.hypot(*theta[:2])
    foot = -c * np.array([a, b])
    along = np.array([-b, a])
    axes.plot(*np.stack([foot - 20 * along, foot + 20 * along]).T, **options)


def illustrate(folder: Path, source: str = "mnist", show: Show = print) -> list[Path]:
    """The three figures as PNGs in the folder; `show` takes a line for each method."""
    reduced(source, 1, 1)  # what is wrong with the data is said before anything is computed
    paths = [folder / f"figure-{number}.png" for number in ("3a", "3b", "4")]
    plots.png(figure_3a(source, show), paths[0])
    plots.png(figure_3b(source, show), paths[1])
    plots.png(figure_4(show), paths[2])
    return paths
