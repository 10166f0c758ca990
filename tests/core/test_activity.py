"""What is known of a symbol before it is decoded: rows, columns, and what was drawn."""

import numpy as np
import pytest

from fedivon_app.core.activity import LEVELS, Activity, Matrix, matrices_of
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


def test_classes_follow_rows_columns_and_closeness():
    matrix = np.zeros((16, 256), np.int16)
    matrix[1, :20] = 1
    matrix[2] = 4
    matrix[3, ::64] = 1
    activity = Activity.of(matrix.reshape(-1), [Matrix(16, 256)])
    by_level = activity.classes(None).reshape(16, 256)
    assert (by_level[0] == 0).all() and by_level[2].min() > by_level[1].max()
    middle = activity.classes(np.full(matrix.size, 1 << 15, np.uint16)).reshape(16, 256)
    ends = [
        activity.classes(np.full(matrix.size, one, np.uint16)).reshape(16, 256)
        for one in (0, (1 << 16) - 1)
    ]
    np.testing.assert_array_equal(*ends)
    assert (middle[0] == 0).all() and (ends[0][0] == 0).all()
    assert (middle[3] != ends[0][3]).all()


def test_levels_that_there_are_not_are_bad():
    activity = Activity.silent([Matrix(16, 16)])
    activity.check()
    for levels, value in ((activity.rows, LEVELS), (activity.columns, 8), (activity.rows, -1)):
        levels[5] = value
        with pytest.raises(BadSymbols, match="a level of activity that there is not"):
            activity.check()
        levels[5] = 0
