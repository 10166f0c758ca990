"""Random numbers that nobody can foresee: AES-256 in counter mode, with a key from the system.

The seed of a run is known to its server, and torch's generator takes 32 bits of a seed: noise that
is to hide something must come from neither.
"""

from __future__ import annotations

import secrets
from math import pi

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

_BITS = 53  # of a float64's fraction


class SecureRandom:
    """A stream of random numbers with a key of its own."""

    def __init__(self) -> None:
        cipher = Cipher(algorithms.AES(secrets.token_bytes(32)), modes.CTR(bytes(16)))
        self._stream = cipher.encryptor()

    def uniform(self, count: int) -> np.ndarray:
        """Return numbers above 0 and at most 1, in float64."""
        words = np.frombuffer(self._stream.update(bytes(8 * count)), np.uint64)
        return ((words >> np.uint64(64 - _BITS)) + 1.0) * 2.0**-_BITS

    def normal(self, count: int) -> Tensor:
        """Return standard normal numbers in float32, made in float64 (Box and Muller 1958)."""
        pairs = (count + 1) // 2
        radius = torch.from_numpy(self.uniform(pairs)).log_().mul_(-2).sqrt_()
        angle = torch.from_numpy(self.uniform(pairs)).mul_(2 * pi)
        both = torch.stack([angle.cos().mul_(radius), angle.sin_().mul_(radius)])
        return both.flatten()[:count].float()

    def chosen(self, count: int, rate: float) -> np.ndarray:
        """Return which of so many are taken, each with the chance `rate` by itself, in order."""
        return np.flatnonzero(self.uniform(count) <= rate)

    def noisy_count(self, count: int, epsilon: float) -> int:
        """Return a count that is epsilon-private, at least 1.

        The noise is the difference of two geometric numbers: a whole number k has a chance
        proportional to exp(-epsilon |k|) (Ghosh, Roughgarden and Sundararajan 2009).
        """
        first, second = np.floor(-np.log(self.uniform(2)) / epsilon).tolist()
        return max(count + int(first - second), 1)
