"""Shared by the tests of the data."""

import numpy as np
import pytest


@pytest.fixture
def arrays():
    """A function that makes the four arrays of an npz file."""

    def make(train=12, test=6, shape=(4, 4), classes=3, seed=0):
        generator = np.random.default_rng(seed)
        made = {}
        for part, size in (("train", train), ("test", test)):
            made[f"x_{part}"] = generator.integers(0, 256, (size, *shape), dtype=np.uint8)
            made[f"y_{part}"] = np.arange(size) % classes
        return made

    return make
