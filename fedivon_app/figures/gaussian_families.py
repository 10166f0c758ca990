"""The two families of Gaussians in which the figures are computed: diagonal and full covariances.

The full covariances are those of `fedivon_app.core.dense`. What is computed here are the same steps
for diagonal ones, of which a dual (v, u) stands for the natural parameter (v, -u/2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from fedivon_app.core import dense, duality
from fedivon_app.core.dense import Dense, Derivatives, Diverged, Dual
from fedivon_app.core.duality import Space
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.regression import SoftmaxRegression

G = TypeVar("G", bound=Posterior)
G_contra = TypeVar("G_contra", bound=Posterior, contravariant=True)
NOT_DEFINITE = "the server's precision is not positive definite"


class GaussianLoss(Protocol[G_contra]):
    """The loss of a client over its data, and its expectations under Gaussians of one family."""

    def at(self, theta: np.ndarray) -> Derivatives:
        """Return the derivatives at a point."""
        ...

    def expected(self, q: G_contra) -> Derivatives:
        """Return the expectations of the derivatives under a Gaussian."""
        ...


@dataclass(frozen=True)
class Descent:
    """How far a client goes by VON: at most `most` steps of length `step`.

    A client with a full covariance stops earlier if it moves by less than `tolerance`; one with a
    diagonal covariance always takes all of its steps.
    """

    step: float
    most: int = 200
    tolerance: float = 1e-9


class Family(ABC, Generic[G]):
    """What BayesADMM and its relatives need of a family of Gaussians."""

    @abstractmethod
    def prior(self, size: int, precision: float) -> G:
        """Return the Gaussian N(0, I/precision) over `size` weights."""

    @abstractmethod
    def no_dual(self, size: int) -> Dual:
        """Return the dual of a client that has not yet trained, which is zero."""

    @abstractmethod
    def solve(
        self, loss: GaussianLoss[G], server: G, dual: Dual, rho: float, descent: Descent
    ) -> G:
        """Return the posterior of a client that starts from the server's and goes down its problem.

        The problem is min E_q[l(theta) + v^T theta - theta^T V theta / 2] + rho KL(q || server).
        `Diverged` is raised if it has no solution.
        """

    @abstractmethod
    def dual_step(self, own: G, server: G, step: float, space: Space) -> Dual:
        """Return what a round adds to the dual of a client."""

    @abstractmethod
    def merge(self, clients: Sequence[G], duals: Dual, delta: float, alpha: float) -> G:
        """Return the server's posterior from those of the clients and the sum of their duals.

        These are the lines 9 to 11 of Algorithm 1. `Diverged` is raised if the merged precision is
        not positive definite.
        """


class FullFamily(Family[Dense]):
    """Gaussians with a full covariance (appendix C.4)."""

    def prior(self, size: int, precision: float) -> Dense:
        return Dense.isotropic(size, precision)

    def no_dual(self, size: int) -> Dual:
        return dense.no_dual(size)

    def solve(
        self, loss: GaussianLoss[Dense], server: Dense, dual: Dual, rho: float, descent: Descent
    ) -> Dense:
        return dense.solve_client(
            loss=loss,
            server=server,
            dual=dual,
            rho=rho,
            step=descent.step,
            most=descent.most,
            tolerance=descent.tolerance,
        )

    def dual_step(self, own: Dense, server: Dense, step: float, space: Space) -> Dual:
        return dense.dual_step(own=own, server=server, step=step, space=space)

    def merge(self, clients: Sequence[Dense], duals: Dual, delta: float, alpha: float) -> Dense:
        merged, raised = dense.merge(clients=clients, duals=duals, delta=delta, alpha=alpha)
        if raised:
            raise Diverged(NOT_DEFINITE)
        return merged


class DiagonalFamily(Family[Posterior]):
    """Gaussians with a diagonal covariance (Algorithm 1)."""

    def prior(self, size: int, precision: float) -> Posterior:
        return Posterior(np.zeros(size), np.full(size, precision))

    def no_dual(self, size: int) -> Dual:
        return np.zeros(size), np.zeros(size)

    def solve(
        self,
        loss: GaussianLoss[Posterior],
        server: Posterior,
        dual: Dual,
        rho: float,
        descent: Descent,
    ) -> Posterior:
        v, u = dual
        anchor = server.known_precision
        step = descent.step
        own = server
        for _ in range(descent.most):
            derivatives = loss.expected(own)
            before = own.known_precision
            target = anchor + (derivatives.hessian - u) / rho
            precision = np.maximum((1 - step) * before + step * target, before / 4)
            slope = (derivatives.gradient + v - u * own.mean) / rho
            slope += anchor * (own.mean - server.mean)
            own = Posterior(own.mean - step * slope / precision, precision)
            if (fault := own.fault()) is not None:
                raise Diverged(f"the client's {fault}")
        return own

    def dual_step(self, own: Posterior, server: Posterior, step: float, space: Space) -> Dual:
        return duality.dual_step(own=own, server=server, step=step, space=space)

    def merge(
        self, clients: Sequence[Posterior], duals: Dual, delta: float, alpha: float
    ) -> Posterior:
        v, u = duals
        curvature = np.mean([q.known_precision for q in clients], axis=0)
        centre = np.mean([q.known_precision * q.mean for q in clients], axis=0)
        precision = (1 - alpha) * curvature + alpha * (delta + u)
        if (precision <= 0).any():
            raise Diverged(NOT_DEFINITE)
        return Posterior(((1 - alpha) * centre + alpha * v) / precision, precision)


FULL = FullFamily()
DIAGONAL = DiagonalFamily()


class DiagonalSoftmax(SoftmaxRegression):
    """The loss of softmax regression with expectations under a diagonal Gaussian.

    The logits of an example are then independent, and of the Hessian only the diagonal is computed.
    """

    def expected(self, q: Posterior) -> Derivatives:
        """Return the expected loss, its gradient and the diagonal of its Hessian."""
        mean = q.mean.astype(np.float64).reshape(-1, self.num_classes)
        variance = q.variance.astype(np.float64).reshape(-1, self.num_classes)
        squares = np.square(self.x)
        logits = (self.x @ mean)[:, None] + np.sqrt(squares @ variance)[:, None] * self.noise
        logits -= logits.max(2, keepdims=True)
        p = np.exp(logits)
        total = p.sum(2, keepdims=True)
        p /= total
        mean_p = p.mean(1)
        value = -float((self.truth * (logits - np.log(total)).mean(1)).sum())
        gradient = self.x.T @ (mean_p - self.truth)
        curvature = squares.T @ (mean_p - np.square(p).mean(1))
        return Derivatives(value, gradient.reshape(-1), curvature.reshape(-1))
