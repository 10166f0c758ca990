"""Draw the pictures of docs/concepts.md, each computed by the project's own code.

python tools/concept_pictures.py            # writes docs/assets/concepts/*.svg
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import torch
from front_picture import GRID, NOISE, bumps, curve, show, train
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedivon_app.core.ivon import IVON
from fedivon_app.core.metrics import classification, reliability, uncertainty
from fedivon_app.core.posterior import Posterior
from fedivon_app.report.style import ALONE, COLOURS, INK, MUTED, styled
from fedivon_app.strategies.aggregation import aggregate

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "assets" / "concepts"
HEIGHT = 2.7


def descend(optimizer: IVON, loss: Callable[[], torch.Tensor], steps: int) -> Posterior:
    """Return the posterior after so many steps of IVON on a loss."""
    for _ in range(steps):
        with optimizer.sampled_params(train=True):
            loss().backward()
        optimizer.step()
    return optimizer.posterior()


def density(values: np.ndarray, posterior: Posterior, place: int = 0) -> np.ndarray:
    """Return the density of one weight of a posterior at these values."""
    precision = float(posterior.known_precision[place])
    distance = values - float(posterior.mean[place])
    result: np.ndarray = np.sqrt(precision / 2 / np.pi) * np.exp(-0.5 * precision * distance**2)
    return result


def bare(axes: Axes, title: str, label: str) -> None:
    """Name what is drawn and what is to the right; the numbers do not matter."""
    axes.set(title=title, xlabel=label, yticks=[])


@styled
def posterior(steps: int = 4000) -> Figure:
    """Two weights: one matters to every example, the other to one example in twenty."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(100, 2))
    inputs[:, 1] *= np.arange(100) % 20 == 0
    truth = np.array([0.6, -0.4])
    outputs = inputs @ truth + 0.5 * random.normal(size=100)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = IVON(model.parameters(), lr=0.02, ess=100, beta2=0.999, weight_decay=0.01)
    x = torch.from_numpy(inputs).float()
    y = torch.from_numpy(outputs).float()
    found = descend(optimizer, lambda: (0.5 * ((model(x)[:, 0] - y) / 0.5) ** 2).mean(), steps)
    figure = Figure(figsize=(8.4, HEIGHT), layout="constrained")
    left, right = figure.subplots(1, 2)
    values = np.linspace(-1.6, 1.6, 401)
    names = ("every example tells", "one example in twenty tells")
    for place, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        weights = np.tile(found.mean, (len(values), 1))
        weights[:, place] = values
        losses = 0.5 * (((inputs @ weights.T - outputs[:, None]) / 0.5) ** 2).mean(axis=0)
        left.plot(values, losses - losses.min(), color=colour, label=name)
        sigma = float(found.known_precision[place]) ** -0.5
        right.plot(values, density(values, found, place), color=colour, label=f"sigma {sigma:.2f}")
        right.fill_between(values, density(values, found, place), color=colour, alpha=0.18, lw=0)
    bare(left, "The loss: steep in one weight, flat in the other", "weight")
    bare(right, "The posterior: narrow, and wide", "weight")
    left.set_ylim(-0.1, 4)
    right.set_ylim(bottom=0)
    left.legend(loc="upper right", frameon=False, fontsize=8.5)
    right.legend(loc="upper left", frameon=False, fontsize=8.5)
    return figure


def some_points(
    low: float, high: float, count: int, lift: float = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return points near the curve of the front picture."""
    random = np.random.default_rng(4)
    x = random.uniform(low, high, count)
    return x, curve(x) + lift + NOISE * random.normal(size=count)


@styled
def ess(steps: int = 4000) -> Figure:
    """The same points under three effective sample sizes."""
    x, y = some_points(0.4, 4.2, 40)
    figure = Figure(figsize=(10.4, HEIGHT), layout="constrained")
    sizes = {"ess 4: a tenth of the examples": 4, "ess 40: as many": 40, "ess 400: ten times": 400}
    for axes, (title, size) in zip(figure.subplots(1, 3), sizes.items(), strict=True):
        # the prior stays the same: weight_decay is its precision over the number of points
        show(axes, train(x, y, steps, ess=size), COLOURS[0], title)
        axes.plot(x, y, "o", color=INK, markersize=2.4)
    return figure


@styled
def merging() -> Figure:
    """Two clients that know one weight differently well, and what servers make of them."""
    sure = Posterior(np.array([0.5]), np.array([60.0]))
    unsure = Posterior(np.array([-0.6]), np.array([5.0]))
    merged = aggregate("product", [sure, unsure], np.array([0.5, 0.5]))
    average = aggregate("nwa", [sure, unsure], np.array([0.5, 0.5]))
    figure = Figure(figsize=(6.4, HEIGHT), layout="constrained")
    axes = figure.subplots()
    values = np.linspace(-2, 1.4, 501)
    shown = {"client A, sure": sure, "client B, unsure": unsure, "their product": merged}
    for (name, one), colour in zip(shown.items(), COLOURS, strict=False):
        axes.plot(values, density(values, one), color=colour, label=name)
        axes.fill_between(values, density(values, one), color=colour, alpha=0.14, lw=0)
    axes.axvline(
        float(average.mean[0]), color=COLOURS[3], dashes=(5, 2), label="average of the means"
    )
    bare(axes, "The product stays near the client that knows", "weight")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", frameon=False, fontsize=8.5)
    return figure


@styled
def models(steps: int = 4000) -> Figure:
    """Two clients whose truths differ: their personal models, and the global one."""
    points = [some_points(0.3, 5.4, 60, lift) for lift in (0.8, -0.4)]
    posteriors = [train(x, y, steps) for x, y in points]
    merged = aggregate("product", posteriors, np.array([0.5, 0.5]))
    titles = ("Client A: its personal model", "Client B: its personal model", "The global model")
    figure = Figure(figsize=(10.4, HEIGHT), layout="constrained")
    panels = figure.subplots(1, 3)
    for place, (axes, one) in enumerate(zip(panels, [*posteriors, merged], strict=True)):
        show(axes, one, COLOURS[place], titles[place])
        axes.lines[-1].remove()  # there is no one truth here
    for place, (x, y) in enumerate(points):
        panels[place].plot(x, y, "o", color=INK, markersize=2.4)
        panels[2].plot(x, y, "o", color=COLOURS[place], markersize=2.4)
    return figure


@styled
def parts(steps: int = 4000, draws: int = 400) -> Figure:
    """Two classes that overlap in one place, and are unknown in another."""
    random = np.random.default_rng(1)
    x = np.sort(random.uniform(0.2, 4.0, 160))
    chance = np.clip((x - 1.3) / 1.2, 0.02, 0.98)
    labels = (random.uniform(size=160) < chance).astype(float)
    torch.manual_seed(0)
    model = torch.nn.Linear(bumps(GRID).shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = IVON(
        model.parameters(), lr=0.05, ess=160, hess_init=0.01, beta2=0.999, weight_decay=0.03 / 160
    )
    inputs = torch.from_numpy(bumps(x)).float()
    targets = torch.from_numpy(labels).float()
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    found = descend(optimizer, lambda: entropy(model(inputs)[:, 0], targets), steps)
    weights = found.mean + random.normal(size=(draws, len(found))) * np.sqrt(found.variance)
    ones = 1 / (1 + np.exp(-weights @ bumps(GRID).T))  # (draws, places)
    said = uncertainty(np.stack([1 - ones, ones], axis=-1))
    figure = Figure(figsize=(8.4, HEIGHT + 0.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(GRID, ones[:30].T, color=COLOURS[0], alpha=0.25, linewidth=0.8)
    left.plot(GRID, ones.mean(axis=0), color=INK, linewidth=2)
    left.plot(x, labels + 0.04 * (0.5 - labels), "|", color=COLOURS[1], markersize=6)
    left.set(title="Thirty draws of the weights, and their mean", ylabel="probability of a class")
    right.plot(GRID, said["aleatoric"], color=COLOURS[1], label="aleatoric: the classes overlap")
    right.plot(GRID, said["epistemic"], color=COLOURS[0], label="epistemic: there are no data")
    right.set(title="Two kinds of not knowing", ylim=(0, 0.75))
    right.legend(loc="upper left", frameon=False, fontsize=8.5)
    for axes in (left, right):
        axes.set(xlabel="input", xticks=[], xlim=(0, 6))
    return figure


@styled
def calibration(count: int = 20_000) -> Figure:
    """A model that is right as often as it says, and the same model grown too sure."""
    random = np.random.default_rng(0)
    logits = 1.6 * random.normal(size=(count, 4))
    honest = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (honest.cumsum(axis=1) < random.uniform(size=(count, 1))).sum(axis=1).clip(max=3)
    sharper = np.exp(2.5 * logits)
    said = {"calibrated": honest, "too sure": sharper / sharper.sum(axis=1, keepdims=True)}
    figure = Figure(figsize=(4.2, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, dashes=(1.4, 1.6))
    for (name, probabilities), colour in zip(said.items(), COLOURS, strict=False):
        bins = reliability(probabilities, labels)
        scores = classification(probabilities, labels)
        filled = np.asarray(bins["count"]) > 50
        axes.plot(
            np.asarray(bins["confidence"])[filled],
            np.asarray(bins["accuracy"])[filled],
            marker="o",
            color=colour,
            label=f"{name}: {100 * scores['accuracy']:.0f} % right, ECE {scores['ece']:.2f}",
        )
    axes.set(xlim=(0.2, 1.02), ylim=(0.2, 1.02), xlabel="confidence", ylabel="share that is right")
    axes.legend(loc="upper left", frameon=False, fontsize=8.5)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "posterior": posterior,
    "ess": ess,
    "merging": merging,
    "models": models,
    "uncertainty": parts,
    "calibration": calibration,
}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        with matplotlib.rc_context({**ALONE, "svg.hashsalt": name}):
            draw().savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
        print(FOLDER / f"{name}.svg")
