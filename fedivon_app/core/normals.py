"""Standard normal numbers: torch's own, faster ones from tables, or those of a compiled loop.

torch spends most of a draw on its generator of bits, which makes one word after another. The table
holds the 2^16 means of N(0, 1) over intervals of equal probability, and a draw is one of them, of
16 bits that numpy's SFC64 makes in blocks. So the numbers are independent and evenly spread as
before, with mean 0 and variance 1, but there are 65,536 of them, and none is beyond 4.4.

The other table holds 2^16 points of the plane, and a draw is two numbers by 16 bits. The i-th point
has the i-th of the means and the one whose place is i with its bits in reverse, every second of
them flipped. Of two numbers of a point, a bits of the first's place and 16 - a of the second's are
independent (a (0, 16, 2)-net: Niederreiter 1987), so that squares of any shape with an equal share
of N(0, 1) x N(0, 1) hold equally many points, and the two are uncorrelated to 1e-5; numbers of
different points are independent.

The compiled loop, which needs numba, is in core/fused_normals.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedivon_app.core.errors import SettingsError

Noise = Literal["torch", "fast", "faster", "fused"]
Fill = Callable[[Tensor], None]  # lets a flat vector hold new numbers
_LEVELS = 2**16
_AT_ONCE = 2**16  # look-ups, whose bits and indices then stay in the cache
_FLIPPED = 0x5555  # bits of a second number's place


def normals(kind: Noise, device: torch.device) -> Fill:
    """Return what draws; on a GPU that is torch always, whose generator there is a fast one."""
    if kind == "torch" or device.type != "cpu":
        return _by_torch
    if kind == "fused":
        from fedivon_app.core.fused_normals import FusedNormals  # late, for it needs numba

        return FusedNormals(new_seed()).fill
    return _Lookup(new_seed()) if kind == "fast" else _Pairs(new_seed())


def new_seed() -> int:
    """Return the next number of torch's generator, the seed of those that are not torch's."""
    return int(torch.randint(2**63 - 1, ()))


def check_noise(kind: Noise, device: torch.device) -> None:
    """Raise a SettingsError if these numbers need a package that is not here."""
    if kind == "fused" and device.type == "cpu" and find_spec("numba") is None:
        raise SettingsError(
            "client.noise is fused, which needs the package numba on a CPU: "
            "pip install 'fedivon[fast]', or choose torch, fast or faster"
        )


def _by_torch(out: Tensor) -> None:
    out.normal_()


class _Lookup:
    """Draws from a table of 2^16 entries, by 16 bits each."""

    def __init__(self, seed: int):
        self._bits = np.random.SFC64(seed)
        self._places = torch.empty(_AT_ONCE, dtype=torch.int32)

    def __call__(self, out: Tensor) -> None:
        self.look_up(_levels(), out)

    def look_up(self, table: Tensor, out: Tensor) -> None:
        """Let `out` hold entries of the table."""
        for part in out.split(_AT_ONCE):
            words = self._bits.random_raw(-(-len(part) // 4)).view(np.uint16)
            places = self._places[: len(part)].copy_(torch.from_numpy(words[: len(part)]))
            torch.index_select(table, 0, places, out=part)


class _Pairs(_Lookup):
    """Draws two numbers at once, which an entry of the table holds in the bits of an int64."""

    def __call__(self, out: Tensor) -> None:
        if len(out) % 2 or out.storage_offset() % 2:
            even = out.new_empty(len(out) + len(out) % 2)
            self(even)
            out.copy_(even[: len(out)])
        else:
            self.look_up(_points(), out.view(torch.int64))


@lru_cache(maxsize=1)
def _levels() -> Tensor:
    """Return the mean of each interval, scaled by a hair to a variance of 1."""
    from scipy.special import ndtri  # late, for few need it

    edges = ndtri(np.arange(_LEVELS + 1) / _LEVELS)
    density = np.exp(-0.5 * np.square(edges)) / np.sqrt(2 * np.pi)
    means = _LEVELS * (density[:-1] - density[1:])
    means = (means - means[::-1]) / 2  # the same on both sides, to the last digit
    return torch.from_numpy((means / means.std()).astype(np.float32))


@lru_cache(maxsize=1)
def _points() -> Tensor:
    """Return the points of the plane, each as one int64."""
    first = np.arange(_LEVELS)
    bits = first[:, None] >> np.arange(16) & 1
    second = (bits << np.arange(16)[::-1]).sum(1) ^ _FLIPPED
    levels = _levels()
    both = torch.stack([levels, levels[torch.from_numpy(second)]], dim=1)
    return both.view(torch.int64).flatten()
