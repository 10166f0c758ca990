"""Merging and weighing: numbers that a reader can check by hand, and properties."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core.posterior import Posterior
from strategies.aggregation import RULES, aggregate
from strategies.weighting import weigh

THREE = [Posterior([1.0, 0.0], [1.0, 4.0]), Posterior([2.0, 2.0], [2.0, 4.0]), Posterior([5.0, 4.0], [1.0, 8.0])]
WEIGHTS = [0.5, 0.25, 0.25]


def test_product_by_hand():
    merged = aggregate("product", THREE, WEIGHTS)
    np.testing.assert_allclose(merged.precision, [0.5 + 0.5 + 0.25, 2 + 1 + 2])
    np.testing.assert_allclose(merged.mean, [(0.5 * 1 + 0.5 * 2 + 0.25 * 5) / 1.25, (0 + 1 * 2 + 2 * 4) / 5])


def test_nwa_by_hand():
    merged = aggregate("nwa", THREE, WEIGHTS)
    np.testing.assert_allclose(merged.mean, [0.5 + 0.5 + 1.25, 0 + 0.5 + 1.0])
    np.testing.assert_allclose(merged.variance, [0.5 + 0.125 + 0.25, 0.125 + 0.0625 + 0.03125])


def test_nwa_averages_points():
    merged = aggregate("nwa", [Posterior([1.0, 3.0]), Posterior([3.0, 5.0])], [0.25, 0.75])
    np.testing.assert_allclose(merged.mean, [2.5, 4.5])
    assert merged.precision is None


def random_posteriors(rng: np.random.Generator, clients: int, size: int) -> list[Posterior]:
    return [Posterior(rng.standard_normal(size), 10 ** rng.uniform(-3, 6, size)) for _ in range(clients)]


def test_product_agrees_with_a_float64_reference():
    rng = np.random.default_rng(0)
    posteriors = random_posteriors(rng, 30, 100_003)  # not a multiple of the block size
    weights = rng.dirichlet(np.ones(30))
    precision = np.stack([p.precision for p in posteriors]).astype(np.float64)
    mean = np.stack([p.mean for p in posteriors]).astype(np.float64)
    total = (weights[:, None] * precision).sum(0)
    merged = aggregate("product", iter(posteriors), weights)
    np.testing.assert_allclose(merged.precision, total, rtol=1e-6)
    np.testing.assert_allclose(merged.mean, (weights[:, None] * precision * mean).sum(0) / total, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(1, 6))
def test_the_order_of_clients_does_not_matter_and_one_client_returns_itself(rule, seed, clients):
    rng = np.random.default_rng(seed)
    posteriors, weights = random_posteriors(rng, clients, 20), rng.dirichlet(np.ones(clients))
    order = rng.permutation(clients)
    one = aggregate(rule, posteriors, weights)
    other = aggregate(rule, [posteriors[i] for i in order], weights[order])
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.precision, other.precision, rtol=1e-5)
    alone = aggregate(rule, posteriors[:1], [1.0])
    np.testing.assert_allclose(alone.mean, posteriors[0].mean, rtol=1e-6)
    np.testing.assert_allclose(alone.precision, posteriors[0].precision, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_memory_does_not_depend_on_the_number_of_clients(rule):
    size = 200_000

    def peak(clients: int) -> int:
        stream = (Posterior(np.full(size, k, np.float32), np.ones(size, np.float32)) for k in range(clients))
        tracemalloc.start()
        aggregate(rule, stream, np.full(clients, 1 / clients))
        measured = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return measured

    assert peak(50) < 1.1 * peak(5)


def test_merging_hessians_differs_from_merging_precisions_by_the_weight_decay_only():
    """Algorithm 2 weighs means by h, Eq. 16 by s = ess (h + wd): at wd = 2e-4 and h near 1 the means agree to 1e-3."""
    rng = np.random.default_rng(1)
    hessians = [rng.uniform(0.5, 2.0, 1000) for _ in range(10)]
    means = [rng.standard_normal(1000) for _ in range(10)]
    weights = np.full(10, 0.1)
    ess, decay = 5000, 2e-4
    by_precision = aggregate(
        "product", [Posterior(m, ess * (h + decay)) for m, h in zip(means, hessians, strict=True)], weights
    )
    by_hessian = aggregate("product", [Posterior(m, h) for m, h in zip(means, hessians, strict=True)], weights)
    np.testing.assert_allclose(by_precision.mean, by_hessian.mean, atol=1e-3)
    np.testing.assert_allclose(by_precision.precision, ess * (by_hessian.precision + decay), rtol=1e-6)


@pytest.mark.parametrize(
    ("rule", "posteriors", "weights", "says"),
    [
        ("prodcut", THREE, WEIGHTS, "did you mean product"),
        ("product", THREE, [0.5, 0.5, 0.5], "sum to 1"),
        ("product", THREE, [1.5, -0.25, -0.25], "non-negative"),
        ("product", [Posterior([1.0])], [1.0], "needs precisions"),
        ("nwa", [Posterior([1.0]), Posterior([1.0, 2.0])], [0.5, 0.5], "differ in length"),
        ("nwa", [Posterior([1.0]), Posterior([1.0], [1.0])], [0.5, 0.5], "some have a precision"),
        ("nwa", THREE, [1.0], "zip"),
    ],
)
def test_wrong_input_is_named(rule, posteriors, weights, says):
    with pytest.raises(ValueError, match=says):
        aggregate(rule, posteriors, weights)


def test_weights():
    np.testing.assert_allclose(weigh("size", THREE, [10, 30, 60]), [0.1, 0.3, 0.6])
    np.testing.assert_allclose(weigh("equal", THREE, [10, 30, 60]), [1 / 3] * 3)
    with pytest.raises(ValueError, match="did you mean size"):
        weigh("sise", THREE, [1, 1, 1])
    with pytest.raises(ValueError, match="positive number of examples"):
        weigh("size", THREE, [1, 0, 1])
