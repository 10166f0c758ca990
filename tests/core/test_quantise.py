"""Steps that are rounded at random keep their expectation, however small their share is."""

import numpy as np
import pytest

from fedivon_app.core.quantise import Linear, Ratio
from fedivon_app.core.rounding import Rounding

COUNT = 1_000_000
DRAWN = Rounding((0,)).drawn(COUNT)
GRID = Linear(np.float32(0), np.ones(COUNT, np.float32))


@pytest.mark.parametrize("share", [0.0, 2.0**-12, 0.01, 0.25, 0.5, 0.7, 0.999])
@pytest.mark.parametrize("lower", [-3, -1, 0, 7])
def test_the_next_step_up_is_taken_as_often_as_its_share(share, lower):
    values = np.full(COUNT, lower + share, np.float32)
    found, beyond = GRID.steps(values, DRAWN)
    assert beyond is None
    assert set(np.unique(found)) <= {lower, lower + 1}
    error = np.abs(found.mean() - lower - share)
    assert error <= 5 * np.sqrt(share * (1 - share) / COUNT) + 2.0**-17


def test_neighbours_are_rounded_on_their_own():
    found = GRID.steps(np.full(COUNT, 0.5, np.float32), DRAWN).symbols
    for distance in (1, 2, 3, 4, 8):
        together = np.corrcoef(found[distance:], found[:-distance])[0, 1]
        assert np.abs(together) < 5 / np.sqrt(COUNT)


@pytest.mark.parametrize("ratio", [0.3, 0.9, 1.0, 1.001, 1.1, 5.0])
def test_the_expectation_of_a_ratio_is_kept(ratio):
    base = np.ones(COUNT, np.float32)
    grid = Ratio(base, per_octave=4)
    found = grid.restore(grid.steps(base * np.float32(ratio), DRAWN).symbols)
    spread = found.astype(np.float64).std() / np.sqrt(COUNT)
    assert np.abs(found.mean(dtype=np.float64) - ratio) <= 5 * spread + 2e-6 * ratio


def test_without_random_numbers_the_nearer_step_is_taken():
    values = np.array([-1.6, -0.5, -0.4, 0.0, 0.4, 0.5, 0.6, 2.51], np.float32)
    found = Linear(np.float32(0), np.ones(8, np.float32)).steps(values, None).symbols
    np.testing.assert_array_equal(found, [-2, -1, 0, 0, 0, 0, 1, 3])
