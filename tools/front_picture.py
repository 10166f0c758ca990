"""Draw the picture of the README: two clients with data in different places, and their merge.

A curve is learned as a sum of bumps, so that every weight matters in one place only. Each client
trains a posterior with IVON over its own points, and the server merges the two by the product rule,
once. Nothing is drawn by hand: the posteriors are those that the project's code finds.

    python tools/front_picture.py            # writes docs/merge.png
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedivon_app.core.ivon import IVON
from fedivon_app.core.posterior import Posterior
from fedivon_app.report.style import COLOURS, INK, MUTED, styled
from fedivon_app.strategies.aggregation import aggregate
from fedivon_app.strategies.weighting import weigh

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "merge.png"
CENTRES = np.linspace(0, 6, 19)
WIDTH = 0.3
NOISE = 0.12
PRIOR_PRECISION = 1.5
PLACES = {"Client A": (0.1, 2.3), "Client B": (3.2, 4.9)}
GRID = np.linspace(0, 6, 301)


def curve(x: np.ndarray) -> np.ndarray:
    """Return the curve that both clients see a part of."""
    return np.sin(1.9 * x) + 0.35 * x - 0.9


def bumps(x: np.ndarray) -> np.ndarray:
    """Return the (N, P) values of the bumps at the given places."""
    return np.exp(-0.5 * ((x[:, None] - CENTRES) / WIDTH) ** 2)


def train(x: np.ndarray, y: np.ndarray, steps: int, ess: float | None = None) -> Posterior:
    """Return the posterior that IVON finds for the weights of the bumps from a client's points.

    Unless it is given, the effective sample size is the number of points.
    """
    torch.manual_seed(0)
    model = torch.nn.Linear(len(CENTRES), 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = IVON(
        model.parameters(),
        lr=0.02,
        ess=ess or len(x),
        hess_init=1.0,
        beta2=0.999,
        weight_decay=PRIOR_PRECISION / len(x),
    )
    inputs = torch.from_numpy(bumps(x)).float()
    outputs = torch.from_numpy(y).float()
    for _ in range(steps):
        with optimizer.sampled_params(train=True):
            error = model(inputs)[:, 0] - outputs
            (0.5 * (error / NOISE) ** 2).mean().backward()
        optimizer.step()
    return optimizer.posterior()


def show(axes: Axes, posterior: Posterior, colour: str, title: str) -> None:
    """Draw the mean of a posterior's curve, and two standard deviations to either side."""
    values = bumps(GRID)
    mean = values @ posterior.mean
    deviation = np.sqrt(values**2 @ posterior.variance)
    axes.fill_between(
        GRID, mean - 2 * deviation, mean + 2 * deviation, color=colour, alpha=0.18, linewidth=0
    )
    axes.plot(GRID, mean, color=colour, linewidth=2, label="mean, two standard deviations")
    axes.plot(GRID, curve(GRID), color=MUTED, linewidth=1, dashes=(1.4, 1.6), label="the truth")
    axes.set(title=title, xlim=(0, 6), ylim=(-2.5, 3.1), xticks=[], yticks=[])


@styled
def draw(steps: int = 4000) -> Figure:
    """Return the picture: what each client knows, and what the server knows after one merge."""
    random = np.random.default_rng(4)
    posteriors: dict[str, Posterior] = {}
    points: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, (low, high) in PLACES.items():
        x = random.uniform(low, high, 40)
        y = curve(x) + NOISE * random.normal(size=40)
        points[name] = (x, y)
        posteriors[name] = train(x, y, steps)
    clients = list(posteriors.values())
    merged = aggregate("product", clients, weigh("size", clients, [40, 40]))
    figure = Figure(figsize=(10.4, 3.3), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for axes, (name, posterior), colour in zip(
        (left, middle), posteriors.items(), COLOURS, strict=False
    ):
        show(axes, posterior, colour, f"{name} is sure where it has data")
        axes.plot(*points[name], "o", color=INK, markersize=2.4)
    show(right, merged, COLOURS[2], "The server is sure where either has")
    average = bumps(GRID) @ np.mean([posterior.mean for posterior in clients], axis=0)
    right.plot(GRID, average, color=COLOURS[3], dashes=(5, 2), label="average of the means")
    right.legend(loc="upper left", frameon=False, fontsize=8.5)
    return figure


if __name__ == "__main__":
    draw().savefig(PICTURE, dpi=150, metadata={"Software": None})
    print(PICTURE)
