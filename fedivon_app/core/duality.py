"""Bayesian duality (Moellenhoff et al. 2025): duals of diagonal Gaussians.

A client's dual is (v, u), standing for the natural parameter (v, -u/2): it enters the client's loss
as <v, theta> - <u theta, theta>/2, and grows after each round by how far the client's posterior is
from the server's, in natural or in expectation parameters. Server and client compute the step from
the same two posteriors, so that duals never travel.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedivon_app.core.posterior import Posterior

Space = Literal["natural", "expectation"]
Dual = tuple[np.ndarray, np.ndarray]  # (v, u)
CAVITY = 0.99  # share of the prior's precision that a dual may take away


def reference(server: Posterior, prior_precision: float, *, first: bool) -> Posterior:
    """Return the Gaussian that clients are tied to in a round.

    It is the server's posterior, but as long as nothing has been merged (`first`), while the
    server's mean is only where the network's weights begin, it is the prior N(0, 1/delta).
    """
    if not first:
        return server
    return Posterior(np.zeros_like(server.mean), np.full_like(server.mean, prior_precision))


def reference_point(server: np.ndarray, alpha: float | None, *, first: bool) -> np.ndarray | float:
    """Return the point that federated ADMM's clients are tied to in a round.

    It is the server's, but a server that is made of the duals (`alpha`) is their sum only if it
    begins at the prior's mean, zero: otherwise the first merge would forget the network's first
    weights, which no dual knows, and begin at the clients' changes alone.
    """
    return 0.0 if first and alpha is not None else server


def coordinates(q: Posterior, space: Space) -> Dual:
    """Return where a Gaussian lies in the space of a dual step, in float64.

    In the natural space these are (s m, s), and in that of expectations (m, -2 (m^2 + 1/s)).
    """
    mean = q.mean.astype(np.float64)
    precision = q.known_precision.astype(np.float64)
    if space == "natural":
        return precision * mean, precision
    return mean, -2 * (np.square(mean) + 1 / precision)


def dual_step(own: Posterior, server: Posterior, step: float, space: Space = "natural") -> Dual:
    """Return what a round adds to a client's dual (v, u), in float64.

    In the natural space (BayesADMM, Algorithm 1) these are

        step (s_k m_k - s m),  step (s_k - s),

    and in the space of expectations (BregmanADMM, with mu = (m, m^2 + 1/s))

        step (m_k - m),  -2 step (m_k^2 + 1/s_k - m^2 - 1/s).
    """
    return summed_step(coordinates(own, space), 1, server, step, space)


def summed_step(own: Dual, count: int, server: Posterior, step: float, space: Space) -> Dual:
    """Return what a round adds to the sum of so many clients' duals.

    `own` are their coordinates, summed: a dual step is linear in them.
    """
    v, u = own
    server_v, server_u = coordinates(server, space)
    return step * (v - count * server_v), step * (u - count * server_u)


def bounded(u: np.ndarray, prior_precision: np.ndarray, rho: float) -> tuple[np.ndarray, int]:
    """Return u where the cavity rho s - u stays positive, and its largest allowed value elsewhere.

    The second value says how many those are. A client's precision is s_k = curvature + s - u/rho:
    where there is no curvature, a larger u would drive it to zero and the mean away.
    """
    limit = CAVITY * rho * prior_precision.astype(np.float64)
    return np.minimum(u, limit), int((u > limit).sum())
