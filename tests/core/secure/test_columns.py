"""Sums of columns in fixed point: exact, whatever their scales."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedivon_app.core.secure import columns

NUMBERS = st.floats(-1e18, 1e18) | st.floats(-1e-3, 1e-3)


@given(vectors=arrays(np.float64, (5, 4), elements=NUMBERS))
def test_the_sum_is_that_of_the_numbers(vectors):
    layout = columns.layout(4, clients=5)
    total = layout.zeros()
    for vector in vectors:
        total.add(layout.encode(columns.part(vector)))
    found = columns.read(layout.decode(total).values)
    scale = np.abs(vectors).sum(axis=0)
    np.testing.assert_allclose(
        found, vectors.sum(axis=0), atol=1e-20, rtol=0
    ) if not scale.any() else None
    assert (np.abs(found - vectors.sum(axis=0)) <= 1e-15 * scale + 1e-19).all()
