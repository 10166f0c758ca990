"""What is known of a symbol before it is decoded: rows, columns, and what was drawn."""

import numpy as np
import pytest

from fedivon_app.core.activity import COLUMN_LEVELS, LEVELS, Activity, Matrix, matrices_of
from fedivon_app.core.tables import BadSymbols


def test_weights_are_followed_by_their_biases():
    lenet = [400, 16, 12_800, 32, 65_536, 128, 1280, 10]
    assert matrices_of(lenet) == [
        Matrix(16, 25),
        Matrix(1, 16),
        Matrix(32, 400),
        Matrix(1, 32),
        Matrix(128, 512),
        Matrix(1, 128),
        Matrix(10, 128),
        Matrix(1, 10),
    ]


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [
        ([], []),
        ([0, 5, 0], [1]),
        ([1024], [8]),  # where nothing is known of rows, they have 128 weights
        ([96, 32], [1, 1]),  # rows of three weights would not pay
        ([64, 64], [1, 1]),
        ([1000, 7], [1, 1]),
        ([1088], [1]),
    ],
)
def test_other_tensors_have_rows_too(sizes, rows):
    found = matrices_of(sizes)
    assert [one.rows for one in found] == rows
    assert sum(one.rows * one.columns for one in found) == sum(sizes)


def test_levels_are_octaves_and_silence():
    matrix = np.zeros((16, 16), np.int16)
    matrix[1] = 1
    matrix[2] = 4
    matrix[:, 3] = 0
    found = Activity.of(matrix.reshape(-1), [Matrix(16, 16)])
    assert found.rows[[0, 1, 2]].tolist() == [0, 9, 11]
    assert found.columns[3] == 0 and set(found.columns[:3].tolist()) == {4}


def classes(activity: Activity, drawn: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
    found = np.zeros(shape, np.uint8)
    places, kinds = activity.busy(drawn)
    assert (kinds > 0).all()
    found.reshape(-1)[places] = kinds
    return found


def test_classes_follow_rows_columns_and_closeness():
    shape = (16, 256)
    matrix = np.zeros(shape, np.int16)
    matrix[1, :20] = 1
    matrix[2] = 4
    matrix[3, ::64] = 1
    activity = Activity.of(matrix.reshape(-1), [Matrix(*shape)])
    by_level = classes(activity, None, shape)
    assert (by_level[0] == 0).all() and by_level[2].min() > by_level[1].max()
    middle = classes(activity, np.full(matrix.size, 1 << 15, np.uint16), shape)
    ends = [
        classes(activity, np.full(matrix.size, one, np.uint16), shape) for one in (0, (1 << 16) - 1)
    ]
    np.testing.assert_array_equal(*ends)
    assert (middle[0] == 0).all() and (ends[0][0] == 0).all()
    assert (middle[3] != ends[0][3]).all()


def test_a_class_is_an_octave_or_where_steps_are_small_their_product_with_closeness():
    """Of every level of a row and of a column, and of draws around every power of two."""
    ends = sorted({(1 << n) + by for n in range(16) for by in (-1, 0, 1)} | {0})
    draws = np.array([*ends, *(65535 - end for end in ends)], np.uint16)
    shape = (LEVELS, COLUMN_LEVELS * len(draws))
    rows = np.arange(LEVELS, dtype=np.int32)
    columns = np.repeat(np.arange(COLUMN_LEVELS, dtype=np.int32), len(draws))
    activity = Activity([Matrix(*shape)], rows, columns)
    drawn = np.tile(draws, LEVELS * COLUMN_LEVELS)
    found = classes(activity, drawn, shape)
    kinds = {}
    for row, column in np.ndindex(shape):
        octave = (row - 9 if row else -40) + (columns[column] - 4 if columns[column] else -40)
        draw = int(drawn[row * shape[1] + column])
        close = 15 - min(draw, 65535 - draw).bit_length()
        if octave >= -1:
            kind = ("large", min(octave, 3), min(close, 2) if octave < 2 else 0)
        else:
            kind = ("small", min(max(octave + close + 1, -3), 3))
        kinds.setdefault(kind, set()).add(int(found[row, column]))
    assert all(len(one) == 1 for one in kinds.values())
    assert len(set.union(*kinds.values())) == len(kinds)
    assert kinds["small", -3] == {0}


def test_levels_that_there_are_not_are_bad():
    activity = Activity.silent([Matrix(16, 16)])
    activity.check()
    for levels, value in ((activity.rows, LEVELS), (activity.columns, 8), (activity.rows, -1)):
        levels[5] = value
        with pytest.raises(BadSymbols, match="a level of activity that there is not"):
            activity.check()
        levels[5] = 0
