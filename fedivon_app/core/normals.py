"""Standard normal numbers: torch's own, or faster ones from a table.

torch spends most of a draw on its generator of bits, which makes one word after another. The table
holds the 2^16 means of N(0, 1) over intervals of equal probability, and a draw is one of them, of
16 bits that numpy's SFC64 makes in blocks. So the numbers are independent and evenly spread as
before, with mean 0 and variance 1, but there are 65,536 of them, and none is beyond 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Noise = Literal["torch", "fast"]
Fill = Callable[[Tensor], None]  # lets a flat vector hold new numbers
_LEVELS = 2**16
_AT_ONCE = 2**16  # numbers, whose bits and indices then stay in the cache


def normals(kind: Noise, device: torch.device) -> Fill:
    """Return what draws; on a GPU that is torch always, whose generator there is a fast one.

    The seed of the fast ones is the next number of torch's generator.
    """
    if kind == "torch" or device.type != "cpu":
        return _by_torch
    return _Table(int(torch.randint(2**63 - 1, ())))


def _by_torch(out: Tensor) -> None:
    out.normal_()


class _Table:
    def __init__(self, seed: int):
        self._bits = np.random.Generator(np.random.SFC64(seed))

    def __call__(self, out: Tensor) -> None:
        levels = _levels()
        for part in out.split(_AT_ONCE):
            words = self._bits.integers(2**64, size=-(-len(part) // 4), dtype=np.uint64)
            numbers = torch.from_numpy(words.view(np.uint16)[: len(part)]).to(torch.int32)
            torch.index_select(levels, 0, numbers, out=part)


@lru_cache(maxsize=1)
def _levels() -> Tensor:
    """Return the mean of each interval, scaled by a hair to a variance of 1."""
    from scipy.special import ndtri  # late, for few need it

    edges = ndtri(np.arange(_LEVELS + 1) / _LEVELS)
    density = np.exp(-0.5 * np.square(edges)) / np.sqrt(2 * np.pi)
    means = _LEVELS * (density[:-1] - density[1:])
    means = (means - means[::-1]) / 2  # the same on both sides, to the last digit
    return torch.from_numpy((means / means.std()).astype(np.float32))
