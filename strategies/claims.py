"""How precise clients say to be, held against those who were sent the same.

For client k and weight j, r_kj is log s_kj less its median over the round's clients. Two measures
are taken of it, and judged by their means over a run, from the first reply on:

- Level, the mean of log s_kj over the weights, less the median of the round's clients. It is held
  against the median of all clients and what most of them are away from it, in both directions; who
  has c times the median's data may claim c times as much, and need not.
- Unevenness, the deviation of r_kj from its own mean over the weights. A tenfold claim at a
  twentieth of the weights, by which these are the liar's own, hardly moves the level. Of who has c
  times the median's data r_kj may be anything from 0 to log c, which deviates by half of that at
  most.

A first round's precisions may be many times the prior's, and a later one's are next to those that
were sent: so clients are compared within a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.cohort import blocks
from fedivon_app.strategies.portraits import WITNESSES, Doubt

LEVEL = log(10)  # away from the median, or, where that is more, this many median deviations:
UNEVENNESS = 0.25  # above the median, or, where that is more, so many:
DEVIATIONS = 6.0  # of both


@dataclass(frozen=True)
class Claim:
    """How much more precise a client says to be than others, and how unevenly over the weights.

    `allowance` is what its data allow it to claim more.
    """

    level: float = 0.0
    allowance: float = 0.0
    unevenness: float = 0.0


def claimed(replies: Sequence[Reply], sent: Posterior) -> dict[int, Claim]:
    """Return what the clients of a round claim, by partition; nothing of points."""
    if sent.precision is None or not replies:
        return {}
    count = len(replies)
    levels = np.zeros(count)
    apart = np.zeros(count)
    squares = np.zeros(count)
    for block in blocks(replies, sent):
        logs = np.log(np.asarray(block.precisions))
        levels += logs.sum(axis=1)
        beside = logs - np.median(logs, axis=0)
        apart += beside.sum(axis=1)
        squares += np.square(beside).sum(axis=1)
    levels = levels / len(sent)
    uneven = np.sqrt(np.maximum(squares / len(sent) - np.square(apart / len(sent)), 0.0))
    usual = float(np.median(levels))
    size = float(np.median([reply.num_examples for reply in replies]))
    return {
        reply.partition: Claim(
            level=float(levels[k]) - usual,
            allowance=max(0.0, log(reply.num_examples / size)),
            unevenness=float(uneven[k]),
        )
        for k, reply in enumerate(replies)
    }


def excessive(means: Mapping[int, Claim]) -> dict[int, Doubt]:
    """Return who claims more than others do, by the means of what each has claimed, and why."""
    if len(means) < WITNESSES:
        return {}
    levels = np.array([claim.level for claim in means.values()])
    usual = float(np.median(levels))
    bound = max(LEVEL, DEVIATIONS * float(np.median(np.abs(levels - usual))))
    unevenness = np.array([claim.unevenness for claim in means.values()])
    even = float(np.median(unevenness))
    spread = float(np.median(np.abs(unevenness - even)))
    uneven = even + max(UNEVENNESS, DEVIATIONS * spread)
    found = {}
    for partition, claim in means.items():
        away = abs(claim.level - usual)
        most = bound + (claim.allowance if claim.level > usual else 0.0)
        if away > most:
            found[partition] = Doubt("claim of precision", away, most)
        elif claim.unevenness > (most := uneven + claim.allowance / 2):
            found[partition] = Doubt("unevenness of precision", claim.unevenness, most)
    return found
