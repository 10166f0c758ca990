"""A guard against replies that claim too much.

In a merge that weighs means by precisions, one client that claims a huge precision has the mean to itself. So what a
client claims is held against its cohort, the replies of the round: its precision, in every block of parameters (a
tensor of the network), against the median of the cohort, and how far it moved the mean, as a norm, likewise. A reply
that exceeds a multiple of the median is cut back to the median itself, and named: cut back to the multiple, it would
still outweigh the others, and where clients start from the merged precision that would grow round after round.

The median is the lower one, so that of two the more modest sets the measure. A majority that lies is not found out, and
data sizes are taken at their word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedivon_app.core.dense import Dense
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.replies import Reply

Findings = dict[
    int, dict[str, float]
]  # by partition, what exceeded its bound: how many times the cohort's median


def guarded(
    replies: Sequence[Reply],
    previous: Posterior | Dense,
    blocks: Sequence[slice],
    precision_bound: float | None,
    change_bound: float | None,
) -> tuple[list[Reply], Findings]:
    """The replies within their bounds, and who exceeded them; a bound that is None is not held."""
    replies = list(replies)
    findings = {}
    for name, bound, cut_back in (
        ("precision", precision_bound, _precisions),
        ("change", change_bound, _changes),
    ):
        if bound is None:
            continue
        for k, (excess, posterior) in cut_back(replies, previous, blocks, bound).items():
            findings.setdefault(replies[k].partition, {})[name] = excess
            replies[k] = replace(
                replies[k], source=replace(replies[k].payload, posterior=posterior)
            )
    return replies, findings


def precision_shares(replies: Sequence[Reply], weights: np.ndarray) -> list[float] | None:
    """How much of the sum of w_k s_k, over all parameters, is each client's; None for points."""
    if any(reply.posterior.precision is None for reply in replies):
        return None
    claimed = weights * [
        float(_diagonal(reply.posterior).mean(dtype=np.float64)) for reply in replies
    ]
    return (claimed / claimed.sum()).tolist()


def lower_median(values: np.ndarray) -> np.ndarray:
    """Along the first axis; of an even number of values the smaller of the two in the middle."""
    return np.sort(values, axis=0)[(len(values) - 1) // 2]


def _precisions(
    replies: Sequence[Reply], previous: object, blocks: Sequence[slice], bound: float
) -> dict[int, tuple[float, Posterior | Dense]]:
    """In a block whose mean or largest precision exceeds the bound, what is above the median's largest is cut off; if
    its mean is still above the median's, it is scaled down. A matrix is scaled as a whole."""
    if not replies or replies[0].posterior.precision is None:
        return {}
    levels = np.array(
        [_levels(_diagonal(reply.posterior), blocks) for reply in replies]
    )  # client, block, which
    typical = lower_median(levels)
    excess = levels / typical
    found = {}
    for k in np.flatnonzero((excess > bound).any(axis=(1, 2))).tolist():
        own = replies[k].posterior
        worst = float(excess[k].max())
        if isinstance(own, Dense):
            found[k] = worst, replace(own, precision=own.precision / worst)
            continue
        precision = own.precision.copy()
        for block, (mean, largest), beyond in zip(
            blocks, typical, excess[k].max(axis=1) > bound, strict=True
        ):
            if not beyond:
                continue
            part = precision[block]
            np.minimum(part, largest, out=part)
            if (now := part.mean(dtype=np.float64)) > mean:
                part *= mean / now
        found[k] = worst, replace(own, precision=precision)
    return found


def _changes(
    replies: Sequence[Reply], previous: Posterior | Dense, blocks: object, bound: float
) -> dict[int, tuple[float, Posterior | Dense]]:
    """A mean that is too far from the server's is brought as near as the median's."""
    norms = np.array([np.linalg.norm(reply.posterior.mean - previous.mean) for reply in replies])
    typical = float(lower_median(norms)) if len(norms) else 0.0
    if typical == 0:  # nobody moves, as where clients learn for themselves: there is no measure
        return {}
    found = {}
    for k in np.flatnonzero(norms > bound * typical).tolist():
        own = replies[k].posterior
        step = (own.mean - previous.mean) * (typical / norms[k])
        found[k] = float(norms[k] / typical), replace(own, mean=previous.mean + step)
    return found


def _levels(precision: np.ndarray, blocks: Sequence[slice]) -> list[tuple[float, float]]:
    """Of each block the mean and the largest."""
    parts = (precision[block] for block in blocks)
    return [(float(part.mean(dtype=np.float64)), float(part.max())) for part in parts]


def _diagonal(posterior: Posterior | Dense) -> np.ndarray:
    return posterior.precision.diagonal() if isinstance(posterior, Dense) else posterior.precision
