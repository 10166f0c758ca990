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
from typing import Protocol

import numpy as np

from fedivon_app.core.duality import Space

Derivatives = tuple[float, np.ndarray, np.ndarray]  # of a loss: value, gradient, Hessian
Dual = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Dense:
    """N(mean, precision^-1), float64."""

    mean: np.ndarray
    precision: np.ndarray

    @classmethod
    def isotropic(cls, size: int, precision: float) -> Dense:
        return cls(np.zeros(size), precision * np.eye(size))

    def covariance(self) -> np.ndarray:
        return np.linalg.inv(self.precision)

    def samples(self, noise: np.ndarray) -> np.ndarray:
        """Draws from standard normal `noise`, (M, P): mean + L^-T noise with precision = L L^T."""
        root = np.linalg.cholesky(self.precision)
        return self.mean + np.linalg.solve(root.T, noise.T).T

    def kl(self, other: Dense) -> float:
        """KL(self || other) = [tr(S_o S^-1) - P + log |S| / |S_o| + (m - m_o)^T S_o (m - m_o)] / 2."""
        difference = self.mean - other.mean
        logs = np.linalg.slogdet(self.precision)[1] - np.linalg.slogdet(other.precision)[1]
        trace = np.trace(np.linalg.solve(self.precision, other.precision))
        return float(0.5 * (trace - len(self.mean) + logs + difference @ other.precision @ difference))


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


def solve_client(
    loss: Loss, server: Dense, dual: Dual, rho: float, step: float = 0.5, tolerance: float = 1e-9, most: int = 200
) -> Dense:
    """The client's problem by VON from the server's posterior, to where it stands still.

    A full step (1) solves it at once if the loss is quadratic.
    """
    v, matrix = dual
    own = server
    for _ in range(most):
        _, gradient, hessian = loss.expected(own)
        target = server.precision + (hessian - matrix) / rho
        precision = positive((1 - step) * own.precision + step * target, own.precision)
        slope = (gradient + v - matrix @ own.mean) / rho + server.precision @ (own.mean - server.mean)
        mean = own.mean - step * np.linalg.solve(precision, slope)
        moved = np.abs(mean - own.mean).max() + np.abs(precision - own.precision).max() / np.abs(precision).max()
        own = Dense(mean, precision)
        if moved < tolerance:
            break
    return own


def merge(clients: Sequence[Dense], duals: Dual, delta: float, alpha: float) -> Dense:
    """S = (1 - alpha) mean(S_k) + alpha (delta I + sum V_k), m = S^-1 [(1 - alpha) mean(S_k m_k) + alpha sum v_k]."""
    v, matrix = duals
    precision = np.mean([q.precision for q in clients], axis=0)
    shift = np.mean([q.precision @ q.mean for q in clients], axis=0)
    precision = (1 - alpha) * precision + alpha * (delta * np.eye(len(v)) + matrix)
    precision = positive(precision, delta * np.eye(len(v)))
    return Dense(np.linalg.solve(precision, (1 - alpha) * shift + alpha * v), precision)


def positive(matrix: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """The matrix made symmetric; if it is not positive definite, its eigenvalues are raised to 1 % of the least of
    `otherwise`."""
    matrix = (matrix + matrix.T) / 2
    try:
        np.linalg.cholesky(matrix)
        return matrix
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        floor = 0.01 * np.linalg.eigvalsh(otherwise).min()
        return (vectors * np.maximum(values, floor)) @ vectors.T


class Ridge:
    """|x theta - y|^2 / 2."""

    def __init__(self, x: np.ndarray, y: np.ndarray):
        self.gram, self.shift, self.constant = x.T @ x, x.T @ y, 0.5 * float(np.square(y).sum())

    def at(self, theta: np.ndarray) -> Derivatives:
        slope = self.gram @ theta
        return float(0.5 * theta @ slope - self.shift @ theta + self.constant), slope - self.shift, self.gram

    def expected(self, q: Dense) -> Derivatives:
        value, gradient, hessian = self.at(q.mean)
        return value + 0.5 * float(np.trace(np.linalg.solve(q.precision, self.gram))), gradient, hessian


class SoftmaxRegression:
    """The summed cross-entropy of the logits x Theta, with Theta (features, classes) as a flat vector.

    The logits of an example are Gaussian under a Gaussian Theta: expectations are over draws of them, each example's
    with noise of its own, (examples, draws, classes), that stays the same from call to call.
    """

    def __init__(self, x: np.ndarray, labels: np.ndarray, num_classes: int, draws: int = 16, seed: int = 0):
        self.x, self.truth, self.num_classes = x, np.eye(num_classes)[labels], num_classes
        half = np.random.default_rng(seed).standard_normal((len(x), draws // 2, num_classes))
        self.noise = np.concatenate([half, -half], axis=1)

    def at(self, theta: np.ndarray) -> Derivatives:
        return self._derivatives((self.x @ theta.reshape(-1, self.num_classes))[:, None])

    def expected(self, q: Dense) -> Derivatives:
        size, classes = self.x.shape[1], self.num_classes
        covariance = q.covariance().reshape(size, classes, size, classes)
        spread = np.einsum("nd,dcef,ne->ncf", self.x, covariance, self.x, optimize=True)
        root = np.linalg.cholesky(spread + 1e-12 * np.eye(classes))
        centre = self.x @ q.mean.reshape(size, classes)
        return self._derivatives(centre[:, None] + np.einsum("ncf,nmf->nmc", root, self.noise))

    def _derivatives(self, logits: np.ndarray) -> Derivatives:
        """From logits (examples, draws, classes), averaged over the draws."""
        logits = logits - logits.max(2, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(2, keepdims=True))
        p = np.exp(log_p)
        mean_p, second = p.mean(1), np.einsum("nma,nmb->nab", p, p) / p.shape[1]
        size, classes = self.x.shape[1], self.num_classes
        hessian = np.empty((size, classes, size, classes))
        for a in range(classes):
            for b in range(a, classes):
                weight = (mean_p[:, a] if a == b else 0) - second[:, a, b]
                hessian[:, a, :, b] = hessian[:, b, :, a] = self.x.T @ (weight[:, None] * self.x)
        value = -float((self.truth * log_p.mean(1)).sum())
        gradient = self.x.T @ (mean_p - self.truth)
        return value, gradient.reshape(-1), hessian.reshape(size * classes, size * classes)
