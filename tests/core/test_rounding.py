"""What is drawn for rounding can be drawn again from the bytes that say it."""

import numpy as np
import pytest

from fedivon_app.core.rounding import Rounding, open_rounding, rounding_size


@pytest.mark.parametrize("entropy", [(0,), (1, 2, 3), (0, 0), (2**32, 5), (2**70 + 1, 2**32 - 1)])
@pytest.mark.parametrize("skipped", [0, 1, 12_345])
def test_it_is_drawn_again_from_its_bytes(entropy, skipped):
    rounding = Rounding(entropy, skipped)
    sealed = rounding.seal()
    assert len(sealed) == 1 + rounding_size(sealed[0])
    again = open_rounding(sealed[1:])
    np.testing.assert_array_equal(again.drawn(1001), rounding.drawn(1001))


def test_arrays_are_drawn_one_after_another():
    first = Rounding((1, 2, 3))
    second = first.after(10)  # of which four come in a draw of 64 bits
    np.testing.assert_array_equal(second.drawn(8), first.drawn(20)[12:])


def test_it_is_drawn_evenly():
    drawn = Rounding((4,)).drawn(400_000)
    assert drawn.dtype == np.uint16
    counts = np.bincount(drawn >> 10, minlength=64)
    assert np.abs(counts - 6250).max() < 5 * np.sqrt(6250)


def test_it_is_the_same_on_all_machines():
    assert Rounding((1, 2, 3)).drawn(6).tolist() == [47504, 63177, 4600, 43940, 9467, 57168]


def test_nothing_drawn_takes_no_bytes():
    assert rounding_size(0) == 0
    assert open_rounding(b"") is None


@pytest.mark.parametrize("entropy", [(), tuple(range(256))])
def test_too_much_entropy_is_an_error(entropy):
    with pytest.raises(ValueError, match="words of entropy, not 1 to 255"):
        Rounding(entropy).seal()
