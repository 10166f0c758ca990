"""Full-covariance Gaussians for small models, and BayesADMM on them, in numpy.

They are those of Moellenhoff et al. 2025, appendix C.4. N(m, S^-1) has the natural parameters
(S m, -S/2) and the moments (m, m m^T + S^-1); a dual is (v, V), standing for the natural parameter
(v, -V/2). A client's problem, with its loss l and the server's N(m_s, S_s^-1), is

    min E_q[ l(theta) + v^T theta - theta^T V theta / 2 ] + rho KL(q || server),

whose solution has rho S = E[H] - V + rho S_s and E[g] + v - V m + rho S_s (m - m_s) = 0, with g and
H the loss's gradient and Hessian: VON (Khan and Rue 2023, Eq. 12) steps towards both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from fedivon_app.core.duality import Space
from fedivon_app.core.errors import DivergenceError, Fault, FaultKind
from fedivon_app.core.posterior import Posterior

Dual = tuple[np.ndarray, np.ndarray]  # (v, V)


@dataclass(frozen=True, eq=False)
class Dense(Posterior):
    """A Gaussian N(mean, precision^-1) in float64, whose precision is a (P, P) matrix.

    It is sent, stored and sampled in the same way as a diagonal posterior.
    """

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

    @classmethod
    def isotropic(cls, size: int, precision: float) -> Dense:
        """Return N(0, I/precision) over so many weights."""
        return cls(np.zeros(size), precision * np.eye(size))

    @property
    def variance(self) -> np.ndarray:
        """Return the variance of each weight by itself."""
        return np.diagonal(self.covariance())

    def precision_range(self) -> tuple[float, float]:
        """Return the smallest and the largest eigenvalue of the precision."""
        values = np.linalg.eigvalsh(self.precision)
        return float(values[0]), float(values[-1])

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of the weights, as float32."""
        drawn = self.samples(rng.standard_normal((1, len(self))))
        return drawn.astype(np.float32)[0, :]

    def fault(self) -> Fault | None:
        """Return what makes this no posterior at all, or None."""
        if (fault := self.fault_of_numbers()) is not None:
            return fault
        if (values := np.linalg.eigvalsh(self.precision))[0] <= 0:
            text = f"precision has {int((values <= 0).sum())} eigenvalues that are not positive"
            return Fault(FaultKind.NOT_POSITIVE, text, where="precision")
        return None

    def covariance(self) -> np.ndarray:
        """Return the inverse of the precision."""
        return np.linalg.inv(self.precision)

    def samples(self, noise: np.ndarray) -> np.ndarray:
        """Return a draw of the weights for each row of standard normal `noise`, (M, P).

        It is mean + L^-T noise, with precision = L L^T.
        """
        drawn: np.ndarray = self.mean + np.linalg.solve(self._root.T, noise.T).T
        return drawn

    @cached_property
    def _root(self) -> np.ndarray:
        return np.linalg.cholesky(self.precision)

    def kl(self, other: Posterior) -> float:
        """Return the divergence KL(self || other) from another full-covariance posterior.

        It is [tr(S_o S^-1) - P + log |S| / |S_o| + (m - m_o)^T S_o (m - m_o)] / 2.
        """
        if not isinstance(other, Dense):
            raise TypeError("the KL divergence of a full-covariance posterior is from another one")
        difference = self.mean - other.mean
        logs = np.linalg.slogdet(self.precision)[1] - np.linalg.slogdet(other.precision)[1]
        trace = np.trace(np.linalg.solve(self.precision, other.precision))
        return float(
            0.5 * (trace - len(self.mean) + logs + difference @ other.precision @ difference)
        )


class Derivatives(NamedTuple):
    """A loss's value, gradient and Hessian."""

    value: float
    gradient: np.ndarray
    hessian: np.ndarray


class Loss(Protocol):
    """A client's loss over its data."""

    def at(self, theta: np.ndarray) -> Derivatives:
        """Return the derivatives at a point."""

    def expected(self, q: Dense) -> Derivatives:
        """Return the expectations of the derivatives under a Gaussian."""


def no_dual(size: int) -> Dual:
    """Return the dual that a client begins with, which is zero."""
    return np.zeros(size), np.zeros((size, size))


def coordinates(q: Dense, space: Space) -> Dual:
    """Return where a Gaussian lies in the space of a dual step.

    These are the natural parameters (S m, S), or the moments (m, -2 (m m' + covariance)).
    """
    if space == "natural":
        return q.precision @ q.mean, q.precision
    return q.mean, -2 * (np.outer(q.mean, q.mean) + q.covariance())


def dual_step(own: Dense, server: Dense, step: float, space: Space = "natural") -> Dual:
    """Return what a round adds to a client's dual.

    It is a difference of natural parameters (BayesADMM) or of moments (BregmanADMM).
    """
    return summed_step(coordinates(own, space), 1, server, step, space)


def summed_step(own: Dual, count: int, server: Dense, step: float, space: Space) -> Dual:
    """Return what a round adds to the sum of so many clients' duals.

    `own` are their coordinates, summed: a dual step is linear in them.
    """
    v, matrix = own
    server_v, server_matrix = coordinates(server, space)
    return step * (v - count * server_v), step * (matrix - count * server_matrix)


class Diverged(DivergenceError):
    """A method has left the Gaussians.

    Something is not finite, or a precision is not positive definite.
    """


def solve_client(
    loss: Loss,
    server: Dense,
    dual: Dual,
    rho: float,
    step: float = 0.5,
    tolerance: float = 1e-9,
    most: int = 200,
) -> Dense:
    """Solve the client's problem by VON, from the server's posterior to where it stands still.

    It takes at most so many steps. A full step (1) solves the problem at once if the loss is
    quadratic. The problem need not have a solution: where V > rho S_s and the loss has little
    curvature it falls for ever, and the posterior widens until it is `Diverged`.
    """
    own = server
    for _ in range(most):
        try:
            length, after = _von_step(
                loss=loss, own=own, server=server, dual=dual, rho=rho, step=step
            )
        except np.linalg.LinAlgError:
            length = 0.0
            after = own
        if not length or not np.isfinite(after.mean).all():
            raise Diverged(
                "the client's problem has no solution nearby: "
                "take fewer VON steps, a smaller dual step or a larger rho"
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
    """Return the length of one step of VON, and the Gaussian after it.

    The length is `step`, halved until a quarter of the precision is left in every direction; it is
    zero where there is no such step.
    """
    v, matrix = dual
    _, gradient, hessian = loss.expected(own)
    target = server.precision + (hessian - matrix) / rho
    target = (target + target.T) / 2
    slope = (gradient + v - matrix @ own.mean) / rho + server.precision @ (own.mean - server.mean)
    for length in step * 0.5 ** np.arange(50):
        precision = (1 - length) * own.precision + length * target
        if _definite(precision - own.precision / 4):
            mean = own.mean - length * np.linalg.solve(precision, slope)
            return float(length), Dense(mean, precision)
    return 0.0, own


def _definite(matrix: np.ndarray) -> bool:
    try:
        return bool(np.isfinite(np.linalg.cholesky(matrix)).all())
    except np.linalg.LinAlgError:
        return False


def merge(clients: Sequence[Dense], duals: Dual, delta: float, alpha: float) -> tuple[Dense, int]:
    """Return the server's posterior, and how many eigenvalues of its precision had to be raised.

    With (sum v_k, sum V_k) the sum of all clients' duals, it is N(m, S^-1) with

        S = (1 - alpha) mean(S_k) + alpha (delta I + sum V_k)
        m = S^-1 [(1 - alpha) mean(S_k m_k) + alpha sum v_k].
    """
    shift = np.zeros(len(clients[0]))
    precision = np.zeros((len(clients[0]), len(clients[0])))
    for q in clients:
        own_shift, own_precision = coordinates(q, "natural")
        shift += own_shift
        precision += own_precision
    return merge_sums((shift, precision), len(clients), duals, delta, alpha)


def merge_sums(own: Dual, count: int, duals: Dual, delta: float, alpha: float) -> tuple[Dense, int]:
    """Return the same from the sums of the natural parameters of so many clients."""
    shift, precision = own
    v, matrix = duals
    prior = delta * np.eye(len(v))
    merged, raised = positive((1 - alpha) / count * precision + alpha * (prior + matrix), prior)
    return Dense(np.linalg.solve(merged, (1 - alpha) / count * shift + alpha * v), merged), raised


def positive(matrix: np.ndarray, otherwise: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the matrix made symmetric and positive definite, and how many eigenvalues were raised.

    If it is not positive definite, its eigenvalues are raised to 1 % of the least of `otherwise`.
    """
    matrix = (matrix + matrix.T) / 2
    try:
        np.linalg.cholesky(matrix)
        return matrix, 0
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        floor = 0.01 * np.linalg.eigvalsh(otherwise).min()
        return (vectors * np.maximum(values, floor)) @ vectors.T, int((values < floor).sum())
