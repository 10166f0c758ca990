"""What is drawn to round steps at random, so that who decodes them can draw it again.

It follows from a few whole numbers, which travel along: who knows what was drawn for a symbol needs
fewer bytes to be told which it is (core/activity.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np

_WORD = 1 << 32
_MOST_WORDS = 255


@dataclass(frozen=True)
class Rounding:
    """The draws of an array: those of this entropy, from so many of 64 bits on."""

    entropy: tuple[int, ...]
    skipped: int = 0

    def drawn(self, count: int) -> np.ndarray:
        """Return evenly drawn whole numbers below 2**16: n is for the middle (n + 1/2) / 2**16.

        Two bytes for each are drawn faster than a float32 is.
        """
        source = np.random.PCG64(self.entropy)
        source.advance(self.skipped)
        words = source.random_raw(_num_draws(count)).astype("<u8", copy=False)
        return words.view("<u2")[:count].astype(np.uint16, copy=False)

    def after(self, count: int) -> Rounding:
        """Return the draws of the next array, after one of so many numbers."""
        return replace(self, skipped=self.skipped + _num_draws(count))

    def seal(self) -> bytes:
        """Return the bytes that say what is drawn: the entropy in words of 32 bits."""
        words = []
        for number in self.entropy:
            words.append(number % _WORD)
            while number := number // _WORD:
                words.append(number % _WORD)
        if not 0 < len(words) <= _MOST_WORDS:
            raise ValueError(f"rounding has {len(words)} words of entropy, not 1 to {_MOST_WORDS}")
        return struct.pack(f"<B{len(words)}II", len(words), *words, self.skipped)


def rounding_size(first: int) -> int:
    """Return how many bytes follow the first, which tells the words; 0 is for no rounding."""
    return 4 * (first + 1) if first else 0


def open_rounding(rest: bytes | memoryview) -> Rounding | None:
    """Return what these bytes, which follow the first, say: None if there are none."""
    if not rest:
        return None
    *words, skipped = struct.unpack(f"<{len(rest) // 4}I", rest)
    return Rounding(tuple(words), skipped)


def _num_draws(count: int) -> int:
    return -(-count // 4)
