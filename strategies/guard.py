"""A guard against replies that claim too much.

In a merge that weighs means by precisions, one client that claims a huge precision has the mean to
itself. So what a client claims is held against its cohort, the replies of the round, and against
what its data can bear: its precision, in every block of parameters (a tensor of the network), how
far it moved the mean, as a norm, and how many examples it says to have. A client with c times as
many examples as the median may be c times as precise, and one that makes c times as many steps may
move c times as far; nobody is held to less than the median for having little. A reply whose
precision or change exceeds a multiple of that is cut back to the median itself, and named: cut back
to the multiple, it would still outweigh the others, and where clients start from the merged
precision that would grow round after round. A size is cut back to its multiple.

The median is the lower one, so that of two the more modest sets the measure. A majority that lies
is not found out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from fedivon_app.core.dense import Dense
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.cohort import diagonal

Findings = dict[int, dict[str, float]]  # by partition, what exceeded its bound: times the median


@dataclass(frozen=True)
class Guarded:
    """The replies within their bounds, and who exceeded which of them by how much."""

    replies: list[Reply]
    findings: Findings


@dataclass(frozen=True, eq=False)
class _Cut:
    """A posterior that was cut back, and how many times the median it had claimed."""

    excess: float
    posterior: Posterior


@dataclass(frozen=True)
class Bounds:
    """How many times the median a reply may claim; a bound that is None is not held."""

    precision: float | None = None
    change: float | None = None
    size: float | None = None


def guarded(
    replies: Sequence[Reply],
    previous: Posterior,
    *,
    blocks: Sequence[slice],
    bounds: Bounds,
    batch_size: int = 1,
) -> Guarded:
    """Return the replies within their bounds; `batch_size` are the examples of a step."""
    kept = list(replies)
    findings: Findings = {}
    if bounds.size is not None and kept:
        sizes = np.array([reply.num_examples for reply in kept])
        most = bounds.size * float(lower_median(sizes))
        for place in np.flatnonzero(sizes > most).tolist():
            reply = kept[place]
            findings[reply.partition] = {"size": reply.num_examples / most * bounds.size}
            kept[place] = replace(reply, num_examples=max(1, int(most)))

    def hold(name: str, cut_back: Callable[[], dict[int, _Cut]]) -> None:
        for place, cut in cut_back().items():
            reply = kept[place]
            findings.setdefault(reply.partition, {})[name] = cut.excess
            payload = replace(reply.payload, posterior=cut.posterior)
            kept[place] = replace(reply, source=payload)

    if (precision_bound := bounds.precision) is not None:
        hold("precision", lambda: _precisions(kept, blocks, precision_bound))
    if (change_bound := bounds.change) is not None:
        hold("change", lambda: _changes(kept, previous, change_bound, batch_size))
    return Guarded(kept, findings)


def precision_shares(replies: Sequence[Reply], weights: np.ndarray) -> list[float] | None:
    """Return how much of the sum of w_k s_k, over all parameters, is each client's.

    None for points.
    """
    if any(reply.posterior.precision is None for reply in replies):
        return None
    means = [float(diagonal(reply.posterior).mean(dtype=np.float64)) for reply in replies]
    claimed = weights * means
    shares: list[float] = (claimed / claimed.sum()).tolist()
    return shares


def lower_median(values: np.ndarray) -> np.ndarray:
    """Return the median along the first axis; of two in the middle, the smaller."""
    ordered: np.ndarray = np.sort(values, axis=0)[(len(values) - 1) // 2]
    return ordered


def _precisions(replies: Sequence[Reply], blocks: Sequence[slice], bound: float) -> dict[int, _Cut]:
    """Cut back precisions.

    In a block whose mean or largest precision exceeds the bound, what is above the median's largest
    is cut off; if its mean is still above the median's, it is scaled down. A matrix is scaled as a
    whole.
    """
    if not replies or replies[0].posterior.precision is None:
        return {}
    levels = np.array([_levels(diagonal(reply.posterior), blocks) for reply in replies])
    typical = lower_median(levels)  # of the axes client, block, which
    more = _times_the_median([reply.num_examples for reply in replies])
    excess = levels / (typical * more[:, None, None])
    found = {}
    for k in np.flatnonzero((excess > bound).any(axis=(1, 2))).tolist():
        own = replies[k].posterior
        worst = float(excess[k].max())
        if isinstance(own, Dense):
            found[k] = _Cut(worst, replace(own, precision=own.precision / worst))
            continue
        precision = own.known_precision.copy()
        beyond = excess[k].max(axis=1) > bound
        for place in np.flatnonzero(beyond).tolist():
            mean, largest = typical[place]
            part = precision[blocks[place]]
            np.minimum(part, largest, out=part)
            if (now := part.mean(dtype=np.float64)) > mean:
                part *= mean / now
        found[k] = _Cut(worst, replace(own, precision=precision))
    return found


def _changes(
    replies: Sequence[Reply], previous: Posterior, bound: float, batch_size: int
) -> dict[int, _Cut]:
    """Bring a mean that is too far from the server's, for its steps, as near as the median's."""
    norms = np.array([np.linalg.norm(reply.posterior.mean - previous.mean) for reply in replies])
    typical = float(lower_median(norms)) if len(norms) else 0.0
    if typical == 0:  # nobody moves, as where clients learn for themselves: there is no measure
        return {}
    steps = [ceil(reply.num_examples / batch_size) for reply in replies]
    excess = norms / (typical * _times_the_median(steps))
    found = {}
    for k in np.flatnonzero(excess > bound).tolist():
        own = replies[k].posterior
        step = (own.mean - previous.mean) * (typical / norms[k])
        found[k] = _Cut(float(excess[k]), replace(own, mean=previous.mean + step))
    return found


def _times_the_median(counts: Sequence[int]) -> np.ndarray:
    """Return how many times the median each count is, and 1 for those below it."""
    values = np.array(counts, np.float64)
    times: np.ndarray = np.maximum(values / lower_median(values), 1.0)
    return times


def _levels(precision: np.ndarray, blocks: Sequence[slice]) -> list[tuple[float, float]]:
    """Return the mean and the largest precision of each block."""
    parts = (precision[block] for block in blocks)
    return [(float(part.mean(dtype=np.float64)), float(part.max())) for part in parts]
