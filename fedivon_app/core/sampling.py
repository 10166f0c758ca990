"""Sampling: which clients take part in a round."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def sampled(
    partitions: Iterable[int], count: int | None, *, seed: int, server_round: int
) -> list[int]:
    """Return the partitions that are drawn in a round, in order; all of them where count is None.

    The draw depends on the seed, the round and the partitions that there are, and on nothing else:
    Flower's node ids are random, partitions are not.
    """
    present = sorted(partitions)
    rng = np.random.default_rng([seed, server_round])
    chosen = rng.choice(present, min(count or len(present), len(present)), replace=False)
    drawn: list[int] = sorted(chosen.tolist())
    return drawn
