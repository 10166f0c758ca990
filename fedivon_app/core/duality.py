"""Bayesian duality (Moellenhoff et al. 2025): natural and expectation parameters of diagonal Gaussians, and duals.

A client's dual is (v, u), standing for the natural parameter (v, -u/2): it enters the client's loss as
<v, theta> - <u theta, theta>/2, and grows after each round by how far the client's posterior is from the server's.
Server and client compute the step from the same two posteriors, so that duals never travel.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedivon_app.core.posterior import Posterior

Space = Literal["natural", "expectation"]
Dual = tuple[np.ndarray, np.ndarray]
CAVITY = 0.99  # share of the prior's precision that a dual may take away


def reference(server: Posterior, server_round: int, prior_precision: float) -> Posterior:
    """What clients are tied to in a round: the server's posterior, but the prior N(0, 1/delta) in round 1, in which the
    server's mean is only where the network's weights begin."""
    if server_round > 1:
        return server
    return Posterior(np.zeros_like(server.mean), np.full_like(server.mean, prior_precision))


def dual_step(own: Posterior, server: Posterior, step: float, space: Space = "natural") -> Dual:
    """What a round adds to a client's dual (v, u), in float64.

    natural (BayesADMM, Algorithm 1): step (s_k m_k - s m), step (s_k - s).
    expectation (BregmanADMM, with mu = (m, m^2 + 1/s)): step (m_k - m), -2 step (m_k^2 + 1/s_k - m^2 - 1/s).
    """
    m_k, s_k, m, s = (
        x.astype(np.float64) for x in (own.mean, own.precision, server.mean, server.precision)
    )
    if space == "natural":
        return step * (s_k * m_k - s * m), step * (s_k - s)
    return step * (m_k - m), -2 * step * (np.square(m_k) + 1 / s_k - np.square(m) - 1 / s)


def bounded(u: np.ndarray, prior_precision: np.ndarray, rho: float) -> tuple[np.ndarray, int]:
    """u where the cavity rho s - u stays positive, its largest allowed value elsewhere; and how many those are.

    A client's precision is s_k = curvature + s - u/rho: where there is no curvature, a larger u would drive it to zero
    and the mean away.
    """
    limit = CAVITY * rho * prior_precision.astype(np.float64)
    return np.minimum(u, limit), int((u > limit).sum())
