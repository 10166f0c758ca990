"""Short forms of long vectors, in which lengths and cosines are about right.

Each weight is added, with a random sign, to one of a few sums: an inner product of two sketches is
that of the vectors, give or take the product of their lengths over the root of the number of sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SIZE = 2048  # of a sketch
STREAM = 0x736B6574  # of the seed: where weights go in a sketch


@dataclass(frozen=True, eq=False)
class Sketch:
    """Turns vectors of one length into short ones, inner products of which are about the same."""

    places: np.ndarray
    signs: np.ndarray

    @classmethod
    def of(cls, length: int, seed: int) -> Sketch:
        """Return the sketch of a run."""
        rng = np.random.default_rng([seed, STREAM])
        places = rng.integers(0, SIZE, length, dtype=np.int16)
        signs = rng.integers(0, 2, length, dtype=np.int8) * np.int8(2) - np.int8(1)
        return cls(places, signs)

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        """Return the short form of a vector."""
        sums = np.bincount(self.places, weights=vector * self.signs, minlength=SIZE)
        return sums.astype(np.float32)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the cosine of the angle between two vectors; 0 where one of them has no length."""
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0
