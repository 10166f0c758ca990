"""BayesADMM and its relatives on small problems, in one process, round by round.

The paper is Moellenhoff et al. 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

import numpy as np

from fedivon_app.core.dense import Diverged, Dual
from fedivon_app.core.duality import Space
from fedivon_app.figures.gaussian_families import NOT_DEFINITE, Descent, Family, G, GaussianLoss

T = TypeVar("T")


@dataclass(frozen=True)
class Variant:
    """A method of the family, told by its steps.

    `rho` weighs the KL divergence from the server, and `step` is the step of the duals in the
    parameters of `space`. `alpha` is the share of the prior and the duals in the merge; where it is
    None, it is ADMM's 1/(1 + rho K).
    """

    name: str
    rho: float
    step: float
    alpha: float | None = None
    space: Space = "natural"


@dataclass(frozen=True, eq=False)
class Problem(Generic[G]):
    """The losses of some clients, and a family of Gaussians in which a posterior is sought.

    The prior over the `size` weights is N(0, I/delta).
    """

    family: Family[G]
    losses: Sequence[GaussianLoss[G]]
    delta: float
    size: int

    def prior(self) -> G:
        """Return the prior as a Gaussian of the family."""
        return self.family.prior(self.size, self.delta)

    def negative_elbo(self, q: G) -> float:
        """Return sum_k E_q[l_k] + KL(q || prior), Eq. 3."""
        return sum(loss.expected(q).value for loss in self.losses) + q.kl(self.prior())


@dataclass(frozen=True, eq=False)
class Round(Generic[T]):
    """What the server and the clients have after a round: their posteriors, or their points."""

    server: T
    clients: list[T]

    def everyone(self) -> list[T]:
        """Return the server's and then the clients'."""
        return [self.server, *self.clients]


@dataclass(frozen=True)
class Trace:
    """A score by round, and why there are fewer rounds than were asked for, if so."""

    values: list[float]
    end: str = ""


def federate(problem: Problem[G], variant: Variant, descent: Descent) -> Iterator[Round[G]]:
    """Yield the posteriors after each round, from the prior on, until the method diverges."""
    family = problem.family
    server = problem.prior()
    duals = [family.no_dual(problem.size) for _ in problem.losses]
    alpha = variant.alpha or 1 / (1 + variant.rho * len(problem.losses))
    while True:
        own = [
            family.solve(loss, server, dual, rho=variant.rho, descent=descent)
            for loss, dual in zip(problem.losses, duals, strict=True)
        ]
        steps = [family.dual_step(q, server, variant.step, variant.space) for q in own]
        duals = [_plus(dual, more) for dual, more in zip(duals, steps, strict=True)]
        server = family.merge(own, reduce(_plus, duals), delta=problem.delta, alpha=alpha)
        if server.fault() is not None:
            raise Diverged(NOT_DEFINITE)
        yield Round(server, own)


def _plus(dual: Dual, more: Dual) -> Dual:
    return dual[0] + more[0], dual[1] + more[1]


def point_admm(problem: Problem[G], rho: float) -> Iterator[Round[np.ndarray]]:
    """Yield the points of federated ADMM (Figure 2a) after each round, from zero on.

    Its clients go to the minimum of their problem.
    """
    mean = np.zeros(problem.size)
    duals = [np.zeros(problem.size) for _ in problem.losses]
    tie = rho * len(problem.losses)
    while True:
        own = [
            proximal(loss, v, rho=rho, centre=mean)
            for loss, v in zip(problem.losses, duals, strict=True)
        ]
        duals = [v + rho * (theta - mean) for v, theta in zip(duals, own, strict=True)]
        mean = (tie * np.mean(own, axis=0) + sum(duals)) / (problem.delta + tie)
        yield Round(mean, own)


def proximal(loss: GaussianLoss[G], v: np.ndarray, rho: float, centre: np.ndarray) -> np.ndarray:
    """Return argmin loss(theta) + <v, theta> + rho/2 |theta - centre|^2 by damped Newton steps."""

    def objective(theta: np.ndarray) -> float:
        return float(loss.at(theta).value + v @ theta + rho / 2 * np.square(theta - centre).sum())

    theta = centre
    for _ in range(100):
        derivatives = loss.at(theta)
        slope = derivatives.gradient + v + rho * (theta - centre)
        if np.abs(slope).max() < 1e-10:
            break
        way = np.linalg.solve(derivatives.hessian + rho * np.eye(len(theta)), slope)
        length = 1.0
        here = objective(theta)
        while length > 1e-6 and objective(theta - length * way) > here:
            length /= 2
        theta = theta - length * way
    return theta


def trace(rounds: Iterator[Round[T]], number: int, score: Callable[[T], float]) -> Trace:
    """Return the score of the server after each of so many rounds.

    Where the method diverges before that, the trace ends there and says why.
    """
    values: list[float] = []
    try:
        while len(values) < number:
            values.append(score(next(rounds).server))
    except Diverged as error:
        return Trace(values, f"diverged in round {len(values) + 1}: {error}")
    return Trace(values)
