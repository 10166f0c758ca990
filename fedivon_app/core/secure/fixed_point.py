"""Numbers as integers modulo 2^32 or 2^64, whose sums are sums of the numbers.

A number x of a slot is rounded to x * scale, with the scale so large that the sum over all sites
still fits if each keeps to the slot's bound. What is beyond the bound is cut off, which would make
the sum wrong, and so it is counted: the count is summed like all else. So is a 1 for each site, by
which the server sees whether the masks came off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

NARROW = np.dtype("<u4")
WIDE = np.dtype("<u8")
_CONTROL = 2  # wide words at the end: how many sites, how many numbers were cut off


@dataclass(frozen=True)
class Slot:
    """A vector of a sum: its length, the largest magnitude of a site's numbers, and its bits."""

    size: int
    bound: float
    bits: Literal[32, 64] = 32

    def scale(self, clients: int) -> float:
        """Return by what numbers are multiplied, in a sum over so many sites."""
        largest: float = 2.0 ** (self.bits - 1) - 1
        return largest / (self.bound * clients)


@dataclass(frozen=True, eq=False)
class Words:
    """A vector of integers modulo 2^32 (`narrow`), and one modulo 2^64 (`wide`)."""

    narrow: np.ndarray
    wide: np.ndarray

    def __post_init__(self) -> None:
        if self.narrow.dtype != NARROW or self.wide.dtype != WIDE:
            raise ValueError(
                f"the words are {self.narrow.dtype} and {self.wide.dtype}, not {NARROW} and {WIDE}"
            )

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both vectors."""
        return self.narrow, self.wide

    @property
    def num_bytes(self) -> int:
        """Return the bytes of both vectors."""
        return self.narrow.nbytes + self.wide.nbytes

    def add(self, other: Words) -> None:
        """Add other words to these, in place; words of another length are a ValueError."""
        for own, more in zip(self.arrays, other.arrays, strict=True):
            if own.shape != more.shape:
                raise ValueError(f"a vector has shape {more.shape}, not {own.shape}")
            np.add(own, more, out=own)

    def copy(self) -> Words:
        """Return the same words, to be changed."""
        return Words(self.narrow.copy(), self.wide.copy())


@dataclass(frozen=True, eq=False)
class Summed:
    """What a sum of words says: the sums by name, over how many sites, and what was cut off."""

    values: dict[str, np.ndarray]
    sites: int
    clipped: int


@dataclass(frozen=True)
class Layout:
    """Where named vectors lie among the words of a sum over at most so many sites."""

    slots: Mapping[str, Slot]
    clients: int

    def zeros(self) -> Words:
        """Return the sum over no site."""
        sizes = {32: 0, 64: _CONTROL}
        for slot in self.slots.values():
            sizes[slot.bits] += slot.size
        return Words(np.zeros(sizes[32], NARROW), np.zeros(sizes[64], WIDE))

    def encode(self, values: Mapping[str, np.ndarray]) -> Words:
        """Return the words of one site; a number that is not finite is a ValueError."""
        if set(values) != set(self.slots):
            raise ValueError(f"the sum is of {sorted(self.slots)}, not of {sorted(values)}")
        words = self.zeros()
        clipped = 0
        for name, place, slot in self._places():
            value = np.asarray(values[name], np.float64).reshape(-1)
            if value.shape != (slot.size,):
                raise ValueError(f"{name} has {value.size} numbers, not {slot.size}")
            if not np.isfinite(value).all():
                raise ValueError(f"{name} has values that are not finite")
            clipped += int(np.count_nonzero(np.abs(value) > slot.bound))
            steps = np.clip(value, -slot.bound, slot.bound) * slot.scale(self.clients)
            signed = np.rint(steps, out=steps).astype(np.int64)
            if slot.bits == 32:
                words.narrow[place] = signed.astype(NARROW)
            else:
                words.wide[place] = signed.view(np.uint64)
        words.wide[-_CONTROL] = 1
        words.wide[-1] = clipped
        return words

    def decode(self, words: Words) -> Summed:
        """Return what the sum of some sites' words says."""
        values = {}
        for name, place, slot in self._places():
            if slot.bits == 32:
                signed = words.narrow[place].view(np.int32)
            else:
                signed = words.wide[place].view(np.int64)
            values[name] = signed.astype(np.float64) / slot.scale(self.clients)
        return Summed(values, sites=int(words.wide[-_CONTROL]), clipped=int(words.wide[-1]))

    def _places(self) -> list[tuple[str, slice, Slot]]:
        """Return where each slot lies among the words of its size."""
        ends = {32: 0, 64: 0}
        places = []
        for name, slot in self.slots.items():
            start = ends[slot.bits]
            ends[slot.bits] = start + slot.size
            places.append((name, slice(start, ends[slot.bits]), slot))
        return places
