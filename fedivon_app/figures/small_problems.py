"""Regressions on pictures of ten classes, dealt to five clients: BayesADMM's Figures 3a and 3b.

The paper is Moellenhoff et al. 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic

import numpy as np

from fedivon_app.core.dense import Dense
from fedivon_app.core.duality import Space
from fedivon_app.core.errors import DataError
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.regression import Ridge, SoftmaxRegression
from fedivon_app.datasets.resize import fit
from fedivon_app.datasets.sources import load
from fedivon_app.figures.gaussian_families import (
    DIAGONAL,
    FULL,
    Descent,
    DiagonalSoftmax,
    Family,
    G,
    GaussianLoss,
)
from fedivon_app.figures.small_federations import (
    Problem,
    Trace,
    Variant,
    federate,
    point_admm,
    trace,
)

Show = Callable[[str], None]
CLASSES = 10
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))  # the classes of the five clients
SHARE = 1 / len(PAIRS)
# 63 % of the way of a straight descent; see `bayes_admm.figure_3a`
STRETCH = Descent(step=1 / 40, most=40, tolerance=0.0)
VARIANTS = (  # of Figure 3a, with the steps of appendix F.1
    Variant("PVI", rho=1.0, step=1.0, alpha=1.0),
    Variant("PVI, damped", rho=1.0, step=SHARE, alpha=1.0),
    Variant("BregmanADMM", rho=1.0, step=SHARE, space="expectation"),
    Variant("BayesADMM", rho=1.0, step=1.0),
)


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs as rows of numbers, and their labels."""

    x: np.ndarray
    labels: np.ndarray

    def __getitem__(self, rows: np.ndarray | slice) -> Examples:
        return Examples(self.x[rows], self.labels[rows])

    def __len__(self) -> int:
        return len(self.labels)


def reduced(source: str, side: int, per_class: int, seed: int = 0) -> Examples:
    """Return some pictures of each of ten classes, as numbers in [0, 1].

    They have at most `side` pixels a side.
    """
    data = load(source)
    if data.num_classes != CLASSES or len(data.shape) != 3:
        raise DataError(
            f"source {source}: illustrate needs pictures in ten classes, "
            "such as mnist, fmnist or digits"
        )
    rng = np.random.default_rng(seed)
    labels = np.asarray(data.y_train)
    rows = np.concatenate(
        [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in range(CLASSES)]
    )
    small = (min(side, data.shape[0]), min(side, data.shape[1]), data.shape[2])
    pictures = fit(source, np.asarray(data.x_train[rows]), small)
    return Examples(pictures.reshape(len(rows), -1) / 255, labels[rows])


def by_pairs(
    examples: Examples, make: Callable[[Examples], GaussianLoss[G]]
) -> list[GaussianLoss[G]]:
    """Return the losses of five clients that have two classes each."""
    return [make(examples[np.isin(examples.labels, pair)]) for pair in PAIRS]


@dataclass(frozen=True)
class ElboPanel(Generic[G]):
    """One panel of Figure 3a: a family, the loss under it, the size of the data and the descents.

    A client goes down its problem by `client`; that of all data at once is solved by `pooled`.
    """

    name: str
    family: Family[G]
    loss: Callable[[np.ndarray, np.ndarray, int, int], GaussianLoss[G]]
    side: int
    per_class: int
    draws: int
    client: Descent
    pooled: Descent

    def loss_of(self, examples: Examples) -> GaussianLoss[G]:
        """Return the loss over these examples."""
        return self.loss(examples.x, examples.labels, CLASSES, self.draws)

    def problem(self, examples: Examples) -> Problem[G]:
        """Return the problem of five clients with prior precision 10."""
        return Problem(
            family=self.family,
            losses=by_pairs(examples, self.loss_of),
            delta=10.0,
            size=CLASSES * examples.x.shape[1],
        )


DIAGONAL_PANEL: ElboPanel[Posterior] = ElboPanel(
    name="diagonal",
    family=DIAGONAL,
    loss=DiagonalSoftmax,
    side=14,
    per_class=500,
    draws=4,
    client=STRETCH,
    pooled=Descent(step=0.05, most=400),
)
FULL_PANEL: ElboPanel[Dense] = ElboPanel(
    name="full",
    family=FULL,
    loss=SoftmaxRegression,
    side=5,
    per_class=120,
    draws=8,
    client=Descent(step=0.1, most=10),
    pooled=Descent(step=0.5, most=40),
)


@dataclass(frozen=True, eq=False)
class ElboCurves:
    """The negative ELBO by round of each variant, by its name, and that of all data at once."""

    examples: Examples
    traces: Mapping[str, Trace]
    pooled: float


def elbo_curves(panel: ElboPanel[G], examples: Examples, rounds: int, show: Show) -> ElboCurves:
    """Return the curves of a panel of Figure 3a; `show` takes a line for each variant."""
    problem = panel.problem(examples)
    traces: dict[str, Trace] = {}
    for variant in VARIANTS:
        posteriors = federate(problem, variant, panel.client)
        found = trace(posteriors, rounds, problem.negative_elbo)
        numbers = " ".join(f"{value:.0f}" for value in found.values)
        show(f"3a, {panel.name}, {variant.name}: {numbers} {found.end}".strip())
        traces[variant.name] = found
    best = panel.family.solve(
        loss=panel.loss_of(examples),
        server=problem.prior(),
        dual=panel.family.no_dual(problem.size),
        rho=1.0,
        descent=panel.pooled,
    )
    pooled = problem.negative_elbo(best)
    show(f"3a, {panel.name}, all data at once: {pooled:.0f}")
    return ElboCurves(examples, traces, pooled)


def ridge_distances(source: str, rounds: int, show: Show) -> dict[str, list[float]]:
    """Return |m - m*| / |m*| after each round, by the name of the method and its settings.

    Here m* is the pooled ridge solution. Of a small grid of settings those are taken whose mean m
    is the nearest to it in the last round.
    """
    examples = reduced(source, side=7, per_class=100)
    size = examples.x.shape[1]
    problem = Problem(
        family=FULL,
        losses=by_pairs(examples, lambda own: Ridge(own.x, _odd(own.labels))),
        delta=25.0,
        size=size,
    )
    gram = examples.x.T @ examples.x + problem.delta * np.eye(size)
    exact = np.linalg.solve(gram, examples.x.T @ _odd(examples.labels))

    def distance(mean: np.ndarray) -> float:
        return max(float(np.linalg.norm(mean - exact) / np.linalg.norm(exact)), 1e-16)

    def points(rho: float) -> Trace:
        return trace(point_admm(problem, rho), rounds, distance)

    def posteriors(rho: float, step: float, space: Space) -> Trace:
        variant = Variant("", rho=rho, step=step, space=space)
        run = federate(problem, variant, Descent(step=1.0))
        return trace(run, rounds, lambda server: distance(server.mean))

    tried = {
        "federated ADMM": {f"rho {rho:g}": points(rho) for rho in (1, 3, 10, 30, 100, 300)},
        "BregmanADMM": {
            f"rho {rho:g}, step {step:g}": posteriors(rho, step, "expectation")
            for rho in (SHARE, 1.0)
            for step in (0.1, 0.2, 1.0, 5.0)
        },
        "BayesADMM": {f"rho = step = {SHARE:g}": posteriors(SHARE, SHARE, "natural")},
    }
    found: dict[str, list[float]] = {}
    for name, runs in tried.items():
        whole = {words: run.values for words, run in runs.items() if not run.end}
        words = min(whole, key=lambda w: whole[w][-1])
        values = whole[words]
        best = f", best of {len(runs)}" if len(runs) > 1 else ""
        found[f"{name} ({words}{best})"] = values
        first = " ".join(f"{value:.1e}" for value in values[:4])
        show(f"3b, {name}, {words}{best}: {first} ... {values[-1]:.1e}")
    return found


def _odd(labels: np.ndarray) -> np.ndarray:
    """1 for an odd digit, -1 for an even one."""
    return labels % 2 * 2.0 - 1
