"""The stage of a robust merge: after the guard, before the method's own rule.

Claims are cut first: how much a client counts, and how precise it says to be at each weight, is no
more and no less than what half of the others vouch for. Then the rule
of the settings says how much each reply counts, or what takes the place of all. What comes out are
replies and weights again, so that any merge can follow. A method that takes replies whole is given
some of them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import ADVISED, MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies import robust
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.cohort import blocks, coordinates
from fedivon_app.strategies.portraits import SAME, WITNESSES

BY_COORDINATE = ("trimmed-mean", "median")
FEWEST = 3  # replies among which somebody can be outvoted
AGREEMENT = 0.3  # median cosine of a round's changes: above it, who goes against most is left out
REACH = 1.5  # changes are cut to this many times the median, where a reply may be cut
WHOLE_REACH = 4.0  # and those beyond this many are left out where it may not


@dataclass(frozen=True, eq=False)
class Vetted:
    """Replies and weights that a minority cannot have moved far, and who was left out."""

    replies: list[Reply]
    weights: np.ndarray
    left_out: frozenset[int] = frozenset()

    def only(self, kept: Sequence[int]) -> Vetted:
        """Return what is left if no other replies than these are kept."""
        replies = [self.replies[k] for k in kept]
        weights = self.weights[np.array(kept, int)]
        there = {reply.partition for reply in replies}
        gone = {reply.partition for reply in self.replies} - there
        whole = weights.sum() if len(weights) else 1.0
        return Vetted(replies, weights / whole, self.left_out | gone)


@dataclass(frozen=True, eq=False)
class Bounds:
    """The precisions between which every reply is cut, weight by weight."""

    low: np.ndarray
    high: np.ndarray


def vetted(
    replies: Sequence[Reply],
    weights: np.ndarray,
    sent: Payload,
    options: MergeSettings,
    *,
    whole: bool,
    moved: np.ndarray | None = None,
) -> Vetted:
    """Return the replies and weights that are merged; `whole`: each as it came, or not at all.

    `moved` is the last move of the mean, for a rule that has a memory.
    """
    rule = options.robust
    if rule == "none" or len(replies) < (WITNESSES if rule in ADVISED else FEWEST):
        return Vetted(list(replies), weights)
    liars = robust.most_liars(len(replies), options.robust_share)
    if rule in ADVISED:
        return _agreeing(replies, weights, sent, whole=whole)
    mixes = options.robust_mixing and not whole
    if rule in BY_COORDINATE:
        return _by_coordinate(replies, weights, sent, options, liars=liars, mixes=mixes)
    if rule == "centred-clipping" and moved is not None:
        centre = sent.posterior.mean + np.float32(options.robust_memory) * moved
        sent = replace(sent, posterior=replace(sent.posterior, mean=centre))
    found = _compared(replies, sent.posterior)
    matrix = robust.mixing(found.gram, liars) if mixes else np.eye(len(replies))
    gram = matrix @ found.gram @ matrix.T
    own = capped(weights)
    equal = np.full(len(replies), 1 / len(replies))
    share = 1.0
    if rule == "geometric-median":
        counted = robust.geometric_median(gram, equal)
    elif rule == "centred-clipping":
        counted = robust.centred_clipping(gram, equal)
        share = float(counted.sum())
        if share == 0:  # most are at the centre, and all are brought there
            counted = equal
    else:
        counted = (robust.krum if rule == "krum" else robust.multi_krum)(gram, liars)
    counted = (counted @ matrix) * own
    kept = np.flatnonzero(counted > 0).tolist()
    good = [replies[k] if whole else _towards(replies[k], sent, share, found.bounds) for k in kept]
    gone = {reply.partition for reply in replies} - {reply.partition for reply in good}
    return Vetted(good, counted[kept] / counted[kept].sum(), frozenset(gone))


def _agreeing(
    replies: Sequence[Reply], weights: np.ndarray, sent: Payload, *, whole: bool
) -> Vetted:
    """Return the replies without those that go against most, where most agree, and no longer ones.

    Where clients have like data, their changes have positive cosines, and one whose median cosine
    with the others is negative is left out. Where their data differ, nobody can tell from one
    round, and all stay. Lengths are cut to a multiple of the median.
    """
    found = _compared(replies, sent.posterior)
    lengths = np.sqrt(np.diag(found.changes))
    typical = float(np.median(lengths))
    if typical == 0:  # nobody moves, as where clients learn for themselves: there is no measure
        return Vetted(list(replies), weights)
    good = np.ones(len(replies), bool)
    cosines = robust.median_cosines(found.changes)
    if float(np.median(cosines)) > AGREEMENT:
        good &= cosines >= 0
    voices = robust.voices(found.changes, SAME)
    if whole:
        good &= (lengths <= WHOLE_REACH * typical) & (voices == 1)
    kept = np.flatnonzero(good).tolist()
    own = (capped(weights) * voices)[kept]
    shares = np.minimum(1.0, REACH * typical / np.maximum(lengths, 1e-300))
    passed = [
        replies[k] if whole else _towards(replies[k], sent, float(shares[k]), found.bounds)
        for k in kept
    ]
    gone = {reply.partition for reply in replies} - {replies[k].partition for k in kept}
    return Vetted(passed, own / own.sum(), frozenset(gone))


def capped(weights: np.ndarray) -> np.ndarray:
    """Return the weights, none of which is larger than what half of the clients have.

    Their sum is 1 again.
    """
    bounded = np.minimum(weights, np.sort(weights)[len(weights) // 2])
    shares: np.ndarray = bounded / bounded.sum()
    return shares


@dataclass(frozen=True, eq=False)
class _Compared:
    """Inner products of all replies, those of their changes alone, and bounds of precisions."""

    gram: np.ndarray
    changes: np.ndarray
    bounds: Bounds | None


def _compared(replies: Sequence[Reply], sent: Posterior) -> _Compared:
    minority = (len(replies) - 1) // 2
    gram = np.zeros((len(replies), len(replies)))
    changes = np.zeros_like(gram)
    bounds = None
    if sent.precision is not None:
        bounds = Bounds(np.empty(len(sent), np.float32), np.empty(len(sent), np.float32))
    for block in blocks(replies, sent):
        if bounds is not None and block.precisions is not None:
            low, high = robust.trimmed_range(block.precisions, minority)
            bounds.low[block.part] = low
            bounds.high[block.part] = high
            block = replace(block, precisions=np.clip(block.precisions, low, high))
        values = coordinates(block)
        gram += values @ values.T
        moved = values[:, : block.means.shape[1]]
        changes += moved @ moved.T
    return _Compared(gram, changes, bounds)


def _within(reply: Reply, bounds: Bounds | None) -> Reply:
    """Return a reply whose precision is cut to the bounds whenever it is read."""
    if bounds is None:
        return reply

    def cut() -> Payload:
        payload = reply.payload
        own = payload.posterior
        precision = np.clip(own.known_precision, bounds.low, bounds.high)
        return replace(payload, posterior=Posterior(own.mean, precision))

    return replace(reply, source=cut)


def _towards(reply: Reply, sent: Payload, share: float, bounds: Bounds | None) -> Reply:
    """Return a reply that went only a share of its way from what was sent."""
    inside = _within(reply, bounds)
    if share == 1:
        return inside

    def nearer() -> Payload:
        payload = inside.payload
        own = payload.posterior
        before = sent.posterior
        mean = before.mean + share * (own.mean.astype(np.float64) - before.mean)
        precision = None
        if own.precision is not None:
            ratio = own.precision.astype(np.float64) / before.known_precision
            precision = before.known_precision * ratio**share
        buffers = payload.buffers
        if buffers is not None and sent.buffers is not None:
            buffers = sent.buffers + np.float32(share) * (buffers - sent.buffers)
        return replace(payload, posterior=Posterior(mean, precision), buffers=buffers)

    return replace(reply, source=nearer)


def _by_coordinate(
    replies: Sequence[Reply],
    weights: np.ndarray,
    sent: Payload,
    options: MergeSettings,
    *,
    liars: int,
    mixes: bool,
) -> Vetted:
    """Return replies that are all the same: the coordinate-wise centre of what was sent.

    That is the centre of m and log s, or, in natural coordinates, that of s and s (m - m_o).
    """
    matrix = np.eye(len(replies))
    if mixes:
        matrix = robust.mixing(_compared(replies, sent.posterior).gram, liars)

    def centre(values: np.ndarray) -> np.ndarray:
        near = matrix @ values
        if options.robust == "median":
            return robust.median(near)
        return robust.trimmed_mean(near, liars)

    mean = np.empty(len(sent.posterior), np.float32)
    precision = None if sent.posterior.precision is None else np.empty_like(mean)
    for block in blocks(replies, sent.posterior):
        part = block.part
        if precision is None or block.precisions is None:
            mean[part] = block.server + centre(block.changes)
        elif options.robust_space == "natural":
            known = centre(block.precisions)
            precision[part] = known
            mean[part] = block.server + centre(block.precisions * block.changes) / known
        else:
            precision[part] = np.exp(centre(np.log(block.precisions)))
            mean[part] = block.server + centre(block.changes)
    buffers = sent.buffers
    if buffers is not None:
        all_of_them = [reply.payload.buffers for reply in replies]
        buffers = centre(np.stack([b for b in all_of_them if b is not None])).astype(np.float32)
    merged = Payload(Posterior(mean, precision), buffers, sent.extras)
    return Vetted([replace(reply, source=merged) for reply in replies], weights)
