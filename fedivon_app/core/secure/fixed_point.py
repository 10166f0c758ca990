"""Numbers as integers modulo 2^32 or 2^64, whose sums are sums of the numbers.

A number x of a slot is rounded to x * scale, with the scale so large that the sum over all sites
still fits if each keeps to the slot's bound. What is beyond the bound is cut off, which would make
the sum wrong, and so it is counted: the count is summed like all else. So is a 1 for each site, by
which the server sees whether the masks came off.

Numbers of 32 bits are words of their own. All others lie in words of 64 bits: two vectors of the
same length whose bits are not more than 64 together share theirs, one above the other. What the sum
below borrows from the one above it is given back when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

NARROW = np.dtype("<u4")
WIDE = np.dtype("<u8")
_CONTROL = 2  # wide words at the end: how many sites, how many numbers were cut off


@dataclass(frozen=True)
class Slot:
    """A vector of a sum: its length, the largest magnitude of a site's numbers, and its bits."""

    size: int
    bound: float
    bits: int = 32

    def scale(self, clients: int) -> float:
        """Return by what numbers are multiplied, in a sum over so many sites."""
        largest: float = 2.0 ** (self.bits - 1) - 1
        return largest / (self.bound * clients)

    def fits(self, other: Slot) -> bool:
        """Return whether the two can share words of 64 bits."""
        return self.size == other.size and self.bits + other.bits <= 64

    def largest(self, clients: int) -> float:
        """Return the largest integer of a site: so many of them fit, however they were rounded."""
        whole = (2 ** (self.bits - 1) - 1) // clients
        nearest = float(whole)
        return nearest if nearest <= whole else math.nextafter(nearest, 0.0)


@dataclass(frozen=True)
class Place:
    """Where a slot lies: among the words of 32 bits or of 64, and above how many bits of them."""

    words: slice
    narrow: bool
    above: int = 0

    def put(self, words: Words, signed: np.ndarray) -> None:
        """Add integers to the words of this place."""
        if self.narrow:
            words.narrow[self.words] = signed.astype(NARROW)
        else:
            words.wide[self.words] += (signed << self.above).view(WIDE)

    def signed(self, words: Words, slot: Slot) -> np.ndarray:
        """Return the integers of this place."""
        if self.narrow:
            return words.narrow[self.words].view(np.int32)
        found = words.wide[self.words].view(np.int64)
        if self.above:
            found = (found - _lowest(found, self.above)) >> self.above
        return _lowest(found, slot.bits)


def _lowest(words: np.ndarray, bits: int) -> np.ndarray:
    """Return the integers that the lowest bits of words stand for, by two's complement."""
    rest = 64 - bits
    found: np.ndarray = (words << rest) >> rest
    return found


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
        ends = {True: 0, False: 0}
        for _, place, _ in self._places():
            ends[place.narrow] = max(ends[place.narrow], place.words.stop)
        return Words(np.zeros(ends[True], NARROW), np.zeros(ends[False] + _CONTROL, WIDE))

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
            largest = slot.largest(self.clients)
            steps = np.rint(value * slot.scale(self.clients))
            signed = np.clip(steps, -largest, largest, out=steps).astype(np.int64)
            place.put(words, signed)
        words.wide[-_CONTROL] = 1
        words.wide[-1] = clipped
        return words

    def decode(self, words: Words) -> Summed:
        """Return what the sum of some sites' words says."""
        values = {}
        for name, place, slot in self._places():
            signed = place.signed(words, slot).astype(np.float64)
            values[name] = signed / slot.scale(self.clients)
        return Summed(values, sites=int(words.wide[-_CONTROL]), clipped=int(words.wide[-1]))

    def _places(self) -> list[tuple[str, Place, Slot]]:
        """Return where each slot lies; the second of two that fit into words together is above."""
        ends = {True: 0, False: 0}
        half: tuple[Place, Slot] | None = None
        places = []
        for name, slot in self.slots.items():
            narrow = slot.bits == 32
            if half and not narrow and half[1].fits(slot):
                place, half = Place(half[0].words, narrow, above=half[1].bits), None
            else:
                start = ends[narrow]
                ends[narrow] = start + slot.size
                place = Place(slice(start, ends[narrow]), narrow)
                half = half if narrow else (place, slot)
            places.append((name, place, slot))
        return places
