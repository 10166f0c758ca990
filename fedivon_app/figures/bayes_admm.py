"""`fedivon illustrate`: BayesADMM's Figures 3a, 3b and 4, computed anew and drawn.

The paper is Moellenhoff et al. 2025.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fedivon_app.figures import lines_in_the_plane as plane
from fedivon_app.figures import small_problems
from fedivon_app.figures.gaussian_families import G
from fedivon_app.figures.lines_in_the_plane import LinesByRound
from fedivon_app.figures.small_federations import Trace
from fedivon_app.figures.small_problems import ElboCurves, ElboPanel, Examples, Show
from fedivon_app.report import plots
from fedivon_app.report.figure_files import png
from fedivon_app.report.style import COLOURS, INK, handle, styled

LONG_DASHES = (0, (5, 3))
DASHES = (0, (4, 3))


@styled
def figure_3a(source: str, show: Show, rounds: int = 8, scale: float = 1.0) -> Figure:
    """Draw the negative ELBO by round of logistic regression, five clients with two classes each.

    The paper says full covariances and VON to convergence (appendix F.1); its script has diagonal
    ones, and clients that take 1250 small steps of IVON. Here both families are drawn, with clients
    that go a stretch of the way: to convergence, BayesADMM's clients soon have no solution (see
    `dense.solve_client`). `scale` multiplies the number of pictures.
    """

    def curves(panel: ElboPanel[G]) -> ElboCurves:
        pictures = small_problems.reduced(source, panel.side, round(scale * panel.per_class))
        return small_problems.elbo_curves(panel, pictures, rounds=rounds, show=show)

    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    diagonal = curves(small_problems.DIAGONAL_PANEL)
    _elbo_panel(left, "Diagonal covariance (the authors' script)", diagonal)
    full = curves(small_problems.FULL_PANEL)
    _elbo_panel(right, "Full covariance (the paper's text)", full)
    left.set_ylabel("negative ELBO")
    handles = [*map(handle, range(len(diagonal.traces))), left.lines[-1]]
    labels = [*diagonal.traces, "all data at once"]
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(
        f"Logistic regression on {source}, five clients with two classes each, prior precision 10\n"
        "A round's client: 40 VON steps of 1/40 (full: 10 of 1/10) from the server's posterior, "
        "not to convergence",
        fontsize=10,
    )
    return figure


def _elbo_panel(axes: Axes, title: str, curves: ElboCurves) -> None:
    for style, trace in enumerate(curves.traces.values()):
        _elbo_curve(axes, trace, COLOURS[style])
    axes.axhline(curves.pooled, color=INK, linewidth=1.2, linestyle=LONG_DASHES)
    count, pixels = curves.examples.x.shape
    axes.set(title=title, xlabel=f"round ({pixels} pixels, {count} pictures)", yscale="log")
    wide = axes.get_ylim()[1] > 5 * curves.pooled
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _elbo_curve(axes: Axes, trace: Trace, colour: str) -> None:
    """Draw a trace, with a cross at its last round where the method then diverged."""
    count = len(trace.values)
    axes.plot(range(1, count + 1), trace.values, color=colour, marker="o")
    if trace.end and trace.values:
        axes.plot(count, trace.values[-1], color=colour, marker="X", markersize=9)


def figure_3b(source: str, show: Show, rounds: int = 20) -> Figure:
    """Draw how far the server's mean is from the pooled ridge solution, by round.

    The settings of the others than BayesADMM are the best of a small grid.
    """
    distances = small_problems.ridge_distances(source, rounds, show)
    lines = [
        plots.Line(label=name, style=style, x=np.arange(1, len(values) + 1), y=np.array(values))
        for style, (name, values) in enumerate(distances.items())
    ]
    figure = plots.curves(
        title=f"Ridge regression on {source}, five clients",
        x="round",
        y="distance to the pooled mean, relative",
        lines=lines,
        log=True,
    )
    figure.set_size_inches(6, 3.8)
    handles = [handle(line.style) for line in lines]
    figure.axes[0].legend(handles, list(distances), frameon=False, loc="center right")
    return figure


@styled
def figure_4(show: Show, rounds: int = 5) -> Figure:
    """Draw the lines that part two clients' classes in the plane, round by round.

    One of the clients has an outlier.
    """
    data = plane.two_clients()
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    admm = plane.lines_of_admm(data, rounds)
    bayes = plane.lines_of_bayes_admm(data, rounds)
    for row, found in zip(grid, (admm, bayes), strict=True):
        _plane_panel(row[0], data, found, place=0, show=show)
        _plane_panel(row[1], data[:1], found, place=1, show=show)
        _plane_panel(row[2], data[1:], found, place=2, show=show)
        for axes in row[:2]:
            _ring(axes, data[0].x[-1])
    handles = [Line2D([], [], color=shade, linewidth=2) for shade in _shades(rounds)]
    handles += [Line2D([], [], color=COLOURS[2], linestyle=DASHES)]
    labels = [*(f"round {number + 1}" for number in range(rounds)), "all data at once"]
    figure.legend(handles, labels, loc="outside lower center", ncols=rounds + 1, frameon=False)
    turn = plane.turned(plane.pooled_mode([data[0][:-1], data[1]]), admm.pooled)
    figure.suptitle(
        "Two clients, delta = rho = 0.2; "
        f"the outlier (ring) turns the line of all data by {turn:.0f}°\n"
        "Off by: from the line of all data in rounds 1, 2, ...; "
        "thin lines: draws of the last round's posterior",
        fontsize=10,
    )
    return figure


def _plane_panel(
    axes: Axes, data: list[Examples], found: LinesByRound, place: int, show: Show
) -> None:
    """Draw what the server (place 0) or a client (1, 2) found, over the points that it knows of."""
    who = f"client {place}" if place else "server"
    for examples in data:
        _points(axes, examples)
    if found.posteriors is not None:
        noise = np.random.default_rng(1).standard_normal((30, 3))
        for draw in found.posteriors.everyone()[place].samples(noise):
            _line(axes, draw, color="0.6", alpha=0.35, linewidth=0.6)
    lines = [one.everyone()[place] for one in found.rounds]
    for theta, shade in zip(lines, _shades(len(lines)), strict=True):
        _line(axes, theta, color=shade, linewidth=2)
    _line(axes, found.pooled, color=COLOURS[2], linewidth=1.6, linestyle=DASHES)
    angles = " ".join(f"{plane.turned(theta, found.pooled):.0f}°" for theta in lines)
    title = f"{found.method}, {who}"
    axes.set(xlim=(-6, 6), ylim=(-3.6, 3.6), xticks=[], yticks=[], title=title)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2}
    axes.text(5.8, 3.3, f"off by {angles}", ha="right", va="top", fontsize=10, bbox=box)
    show(f"4, {title}: off the pooled line by {angles}")


def _shades(rounds: int) -> list[str]:
    """Return a grey for each round, the last one black."""
    return [str(shade) for shade in np.linspace(0.75, 0.0, rounds)]


def _points(axes: Axes, examples: Examples) -> None:
    for label, marker in enumerate("os"):
        own = examples.x[examples.labels == label]
        axes.scatter(
            own[:, 0], own[:, 1], s=20, marker=marker, color=COLOURS[label], linewidth=0, zorder=3
        )


def _ring(axes: Axes, point: np.ndarray) -> None:
    axes.scatter(point[0], point[1], s=150, facecolor="none", edgecolor=INK, zorder=4)


def _line(axes: Axes, theta: np.ndarray, **options: Any) -> None:
    """Draw where a x + b y + c = 0."""
    a, b, c = theta / np.hypot(theta[0], theta[1])
    foot = -c * np.array([a, b])
    along = 20 * np.array([-b, a])
    ends = np.stack([foot - along, foot + along])
    axes.plot(ends[:, 0], ends[:, 1], **options)


def illustrate(folder: Path, source: str = "mnist", show: Show = print) -> list[Path]:
    """Draw the three figures as PNGs in the folder and return their paths.

    `show` takes a line for each method.
    """
    small_problems.reduced(source, 1, 1)  # wrong data are told before anything is computed
    paths = [folder / f"figure-{number}.png" for number in ("3a", "3b", "4")]
    png(figure_3a(source, show), paths[0])
    png(figure_3b(source, show), paths[1])
    png(figure_4(show), paths[2])
    return paths
