"""Full-covariance Gaussians for small models, and BayesADMM on them (Moellenhoff et al. 2025, appendix C.4). numpy.

N(m, S^-1) has the natural parameters (S m, -S/2) and the moments (m, m m^T + S^-1); a dual is (v, V), standing for the
natural parameter (v, -V/2). A client's problem, with its loss l and the server's N(m_s, S_s^-1), is

    min E_q[ l(theta) + v^T theta - theta^T V theta / 2 ] + rho KL(q || server),

whose solution has rho S = E[H] - V + rho S_s and E[g] + v - V m + rho S_s (m - m_s) = 0, with g and H the loss's
gradient and Hessian: VON (Khan and Rue 2023, Eq. 12) steps towards both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fedivon_app.core.duality import Space

Derivatives = tuple[float, np.ndarray, np.ndarray]  # of a loss: value, gradient, Hessian
Dual = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Dense:
    """N(mean, precision^-1), float64; it is sent, stored and sampled in the same way as a diagonal `Posterior`."""

    mean: np.ndarray
    precision: np.ndarray

    def __post_init__(self) -> None:
        for name in ("mean", "precision"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), np.float64))
        if self.mean.ndim != 1 or self.precision.shape != 2 * self.mean.shape:
            shapes = f"{self.mean.shape} and {self.precision.shape}"
            raise ValueError(
                f"a full-covariance posterior has a mean (P,) and a precision (P, P), not {shapes}"
            )

    def __len__(self) -> int:
        return len(self.mean)

    @classmethod
    def isotropic(cls, size: int, precision: float) -> Dense:
        return cls(np.zeros(size), precision * np.eye(size))

    @property
    def variance(self) -> np.ndarray:
        """Of each weight by itself."""
        return np.diagonal(self.covariance())

    def precision_range(self) -> tuple[float, float]:
        """The smallest and the largest eigenvalue."""
        values = np.linalg.eigvalsh(self.precision)
        return float(values[0]), float(values[-1])

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """One draw of the weights, float32."""
        return self.samples(rng.standard_normal((1, len(self))))[0].astype(np.float32)

    def fault(self) -> str | None:
        """What makes this no posterior at all, or None."""
        for name, array in (("mean", self.mean), ("precision", self.precision)):
            if not (finite := np.isfinite(array)).all():
                return f"{name} has {array.size - int(finite.sum())} values that are not finite"
        if (values := np.linalg.eigvalsh(self.precision))[0] <= 0:
            return f"precision has {int((values <= 0).sum())} eigenvalues that are not positive"
        return None

    def covariance(self) -> np.ndarray:
        return np.linalg.inv(self.precision)

    def samples(self, noise: np.ndarray) -> np.ndarray:
        """Draws from standard normal `noise`, (M, P): mean + L^-T noise with precision = L L^T."""
        return self.mean + np.linalg.solve(self._root.T, noise.T).T

    @cached_property
    def _root(self) -> np.ndarray:
        return np.linalg.cholesky(self.precision)

    def kl(self, other: Dense) -> float:
        """KL(self || other) = [tr(S_o S^-1) - P + log |S| / |S_o| + (m - m_o)^T S_o (m - m_o)] / 2."""
        difference = self.mean - other.mean
        logs = np.linalg.slogdet(self.precision)[1] - np.linalg.slogdet(other.precision)[1]
        trace = np.trace(np.linalg.solve(self.precision, other.precision))
        return float(
            0.5 * (trace - len(self.mean) + logs + difference @ other.precision @ difference)
        )


class Loss(Protocol):
    """A client's loss over its data."""

    def at(self, theta: np.ndarray) -> Derivatives:
        """At a point."""

    def expected(self, q: Dense) -> Derivatives:
        """Their expectations under a Gaussian."""


def no_dual(size: int) -> Dual:
    return np.zeros(size), np.zeros((size, size))


def dual_step(own: Dense, server: Dense, step: float, space: Space = "natural") -> Dual:
    """What a round adds to a client's dual: by natural parameters (BayesADMM) or by moments (BregmanADMM)."""
    if space == "natural":
        return (
            step * (own.precision @ own.mean - server.precision @ server.mean),
            step * (own.precision - server.precision),
        )
    second = [np.outer(q.mean, q.mean) + q.covariance() for q in (own, server)]
    return step * (own.mean - server.mean), -2 * step * (second[0] - second[1])


class Diverged(ValueError):
    """A method has left the Gaussians: something is not finite, or a precision not positive definite."""


def solve_client(
    loss: Loss,
    server: Dense,
    dual: Dual,
    rho: float,
    step: float = 0.5,
    tolerance: float = 1e-9,
    most: int = 200,
) -> Dense:
    """The client's problem by VON from the server's posterior, to where it stands still or for `most` steps.

    A full step (1) solves it at once if the loss is quadratic. The problem need not have a solution: where V > rho S_s
    and the loss has little curvature it falls for ever, and the posterior widens until it is `Diverged`.
    """
    own = server
    for _ in range(most):
        try:
            length, after = _von_step(loss, own, server, dual, rho, step)
        except np.linalg.LinAlgError:
            length = 0.0
            after = own
        if not length or not np.isfinite(after.mean).all():
            raise Diverged(
                "the client's problem has no solution nearby: take fewer VON steps, a smaller dual step or a larger rho"
            )
        moved = np.abs(after.mean - own.mean).max()
        moved += np.abs(after.precision - own.precision).max() / np.abs(after.precision).max()
        own = after
        if moved < tolerance * length / step:
            break
    return own


def _von_step(
    loss: Loss, own: Dense, server: Dense, dual: Dual, rho: float, step: float
) -> tuple[float, Dense]:
    """One step of VON and its length: `step`, halved until a quarter of the precision is left in every direction."""
    v, matrix = dual
    _, gradient, hessian = loss.expected(own)
    target = server.precision + (hessian - matrix) / rho
    target = (target + target.T) / 2
    slope = (gradient + v - matrix @ own.mean) / rho + server.precision @ (own.mean - server.mean)
    for length in step * 0.5 ** np.arange(50):
        precision = (1 - length) * own.precision + length * target
        if _definite(precision - own.precision / 4):
            return float(length), Dense(
                own.mean - length * np.linalg.solve(precision, slope), precision
            )
    return 0.0, own


def _definite(matrix: np.ndarray) -> bool:
    try:
        return bool(np.isfinite(np.linalg.cholesky(matrix)).all())
    except np.linalg.LinAlgError:
        return False


def merge(clients: Sequence[Dense], duals: Dual, delta: float, alpha: float) -> tuple[Dense, int]:
    """S = (1 - alpha) mean(S_k) + alpha (delta I + sum V_k), m = S^-1 [(1 - alpha) mean(S_k m_k) + alpha sum v_k];
    and how many of S's eigenvalues had to be raised."""
    v, matrix = duals
    precision = np.zeros_like(matrix)
    shift = np.zeros_like(v)
    for q in clients:
        precision += q.precision / len(clients)
        shift += q.precision @ q.mean / len(clients)
    prior = delta * np.eye(len(v))
    precision, raised = positive((1 - alpha) * precision + alpha * (prior + matrix), prior)
    return Dense(np.linalg.solve(precision, (1 - alpha) * shift + alpha * v), precision), raised


def positive(matrix: np.ndarray, otherwise: np.ndarray) -> tuple[np.ndarray, int]:
    """The matrix made symmetric; if it is not positive definite, its eigenvalues are raised to 1 % of the least of
    `otherwise`, and how many those are."""
    matrix = (matrix + matrix.T) / 2
    try:
        np.linalg.cholesky(matrix)
        return matrix, 0
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        floor = 0.01 * np.linalg.eigvalsh(otherwise).min()
        return (vectors * np.maximum(values, floor)) @ vectors.T, int((values < floor).sum())
