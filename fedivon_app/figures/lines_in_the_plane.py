"""Two clients in the plane and the lines that part their classes: BayesADMM's Figure 4.

The paper is Moellenhoff et al. 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedivon_app.core.dense import Dense
from fedivon_app.core.regression import LogisticRegression
from fedivon_app.figures.gaussian_families import FULL, Descent
from fedivon_app.figures.small_federations import (
    Problem,
    Round,
    Variant,
    federate,
    point_admm,
    proximal,
)
from fedivon_app.figures.small_problems import STRETCH, Examples

DELTA = 0.2  # the prior's precision, rho and the dual step of Figure 4 (appendix F.3)


def two_clients(seed: int = 0) -> list[Examples]:
    """Return the points of two clients in the plane, with labels 0 and 1.

    The classes of client 1 are far apart, and its last point is an outlier; those of client 2 are
    close to each other.
    """
    rng = np.random.default_rng(seed)
    far = _two_clouds(rng, centres=((-4, 0), (4, 0)), each=20, width=0.6)
    close = _two_clouds(rng, centres=((-1.6, -0.4), (0.6, 0.6)), each=40, width=0.35)
    outlier = Examples(np.append(far.x, [[3.2, -2.4]], axis=0), np.append(far.labels, 0))
    return [outlier, close]


def _two_clouds(
    rng: np.random.Generator, centres: Sequence[tuple[float, float]], each: int, width: float
) -> Examples:
    points = np.concatenate([rng.normal(centre, width, (each, 2)) for centre in centres])
    return Examples(points, np.repeat([0, 1], each))


@dataclass(frozen=True, eq=False)
class LinesByRound:
    """The lines a x + b y + c = 0 that a method finds: (a, b, c) of the server and of each client.

    `posteriors` are those of the last round, where the method has any; `pooled` is the line of all
    data at once.
    """

    method: str
    rounds: list[Round[np.ndarray]]
    pooled: np.ndarray
    posteriors: Round[Dense] | None = None


def lines_of_admm(data: Sequence[Examples], rounds: int) -> LinesByRound:
    """Return what federated ADMM finds in the plane."""
    run = point_admm(_plane(data), rho=DELTA)
    return LinesByRound("Federated ADMM", [next(run) for _ in range(rounds)], pooled_mode(data))


def lines_of_bayes_admm(data: Sequence[Examples], rounds: int) -> LinesByRound:
    """Return the means of what BayesADMM finds in the plane."""
    variant = Variant("BayesADMM", rho=DELTA, step=DELTA)
    run = federate(_plane(data), variant, STRETCH)
    found = [next(run) for _ in range(rounds)]
    means = [Round(one.server.mean, [q.mean for q in one.clients]) for one in found]
    pooled = FULL.solve(
        loss=_logistic(_joined(data)),
        server=FULL.prior(3, DELTA),
        dual=FULL.no_dual(3),
        rho=1.0,
        descent=Descent(step=0.3),
    )
    return LinesByRound(variant.name, means, pooled.mean, found[-1])


def pooled_mode(data: Sequence[Examples]) -> np.ndarray:
    """Return the most probable line of all data at once."""
    return proximal(_logistic(_joined(data)), np.zeros(3), rho=DELTA, centre=np.zeros(3))


def turned(theta: np.ndarray, other: np.ndarray) -> float:
    """Return the angle in degrees between two lines a x + b y + c = 0, with their sides."""
    across = theta[0] * other[1] - theta[1] * other[0]
    along = theta[0] * other[0] + theta[1] * other[1]
    return float(np.degrees(abs(np.arctan2(across, along))))


def _plane(data: Sequence[Examples]) -> Problem[Dense]:
    losses = [_logistic(examples) for examples in data]
    return Problem(family=FULL, losses=losses, delta=DELTA, size=3)


def _logistic(examples: Examples) -> LogisticRegression:
    return LogisticRegression(np.c_[examples.x, np.ones(len(examples))], examples.labels)


def _joined(data: Sequence[Examples]) -> Examples:
    inputs = np.concatenate([examples.x for examples in data])
    return Examples(inputs, np.concatenate([examples.labels for examples in data]))
