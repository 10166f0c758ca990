"""What clients claim of their precision, weight by weight, against those of their round."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core.codec import Payload
from fedivon_app.core.dense import Dense
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies import cohort
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.claims import Claim, claimed, excessive

SIZE = 400
SENT = Posterior(np.zeros(SIZE), np.full(SIZE, 5.0))


def cohort_of(precisions, sizes=None):
    sizes = sizes or [10] * len(precisions)
    return [
        Reply(k, size, 0, Payload(Posterior(np.zeros(len(own)), own)), {})
        for k, (own, size) in enumerate(zip(precisions, sizes, strict=True))
    ]


def usual(count=9, seed=0, spread=0.05):
    """Precisions that differ between weights by much, and between clients by little."""
    rng = np.random.default_rng(seed)
    common = np.exp(3 * rng.standard_normal(SIZE))
    return [common * np.exp(spread * rng.standard_normal(SIZE)) for _ in range(count)]


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 1000),
    times=st.floats(4, 1e6),
    share=st.floats(0.05, 0.5),
    down=st.booleans(),
)
def test_a_claim_for_a_few_weights_is_found_and_nobody_else(seed, times, share, down):
    """Tenfold at a twentieth of them moves the mean of the claims by next to nothing."""
    given = usual(seed=seed)
    own = given[2]
    chosen = own >= np.quantile(own, 1 - share)
    given[2] = np.where(chosen, own / times if down else own * times, own)
    assert set(excessive(claimed(cohort_of(given), SENT))) == {2}


@pytest.mark.parametrize("liars", [(0,), (0, 3), (0, 3, 5, 8)])
def test_a_minority_that_claims_the_same_is_found_whole(liars):
    given = usual()
    best = given[0] >= np.quantile(given[0], 0.95)
    for k in liars:
        given[k] = np.where(best, 10 * given[k], given[k])
    found = excessive(claimed(cohort_of(given), SENT))
    assert set(found) == set(liars)
    assert {doubt.what for doubt in found.values()} == {"unevenness of precision"}


def test_who_claims_more_of_all_weights_alike_is_no_more_uneven_for_it():
    given = usual()
    given[4] = 5 * given[4]
    claims = claimed(cohort_of(given), SENT)
    assert claims[4].level == pytest.approx(np.log(5), abs=0.02)
    assert claims[4].unevenness < 0.1
    assert not excessive(claims)  # five times is not ten


def test_where_all_are_uneven_nobody_is_in_doubt_for_it():
    assert not excessive(claimed(cohort_of(usual(spread=1.5)), SENT))


def test_more_data_allow_a_larger_claim_of_all_weights():
    given = usual()
    given[4] = 50 * given[4]
    assert set(excessive(claimed(cohort_of(given), SENT))) == {4}
    assert not excessive(claimed(cohort_of(given, sizes=[10] * 4 + [500] + [10] * 4), SENT))


def test_more_data_of_some_kinds_allow_an_uneven_claim():
    """Curvature grows with the examples where they say something, and nowhere else."""
    given = usual()
    given[4] = np.where(np.arange(SIZE) < SIZE // 2, 4 * given[4], given[4])
    assert set(excessive(claimed(cohort_of(given), SENT))) == {4}
    assert not excessive(claimed(cohort_of(given, sizes=[10] * 4 + [40] + [10] * 4), SENT))


def test_blocks_of_the_vector_do_not_matter(monkeypatch):
    given = cohort_of(usual())
    whole = claimed(given, SENT)
    monkeypatch.setattr(cohort, "_BYTES", 8 * len(given) * 7)
    for k, claim in claimed(given, SENT).items():
        assert claim.level == pytest.approx(whole[k].level, abs=1e-9)
        assert claim.unevenness == pytest.approx(whole[k].unevenness, abs=1e-9)


def test_points_claim_nothing_and_of_a_matrix_the_diagonal_counts():
    point = Reply(0, 10, 0, Payload(Posterior(np.zeros(SIZE))), {})
    assert claimed([point], Posterior(np.zeros(SIZE))) == {}
    dense = [Reply(k, 10, 0, Payload(Dense(np.zeros(3), np.eye(3))), {}) for k in range(5)]
    assert claimed(dense, Dense(np.zeros(3), np.eye(3)))[1] == Claim()


def test_among_few_nobody_is_judged():
    given = usual(count=4)
    given[0] = given[0] * np.exp(5 * np.random.default_rng(0).standard_normal(SIZE))
    assert not excessive(claimed(cohort_of(given), SENT))
