"""Merging and weighing: numbers that a reader can check by hand, and properties."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.aggregation import RULES, aggregate, aggregate_noting
from fedivon_app.strategies.weighting import WEIGHTINGS, weigh

THREE = [
    Posterior([1.0, 0.0], [1.0, 4.0]),
    Posterior([2.0, 2.0], [2.0, 4.0]),
    Posterior([5.0, 4.0], [1.0, 8.0]),
]
WEIGHTS = [0.5, 0.25, 0.25]
START = Posterior([1.0, 1.0], [0.5, 7.0])


def test_product_by_hand():
    merged = aggregate("product", THREE, WEIGHTS)
    np.testing.assert_allclose(merged.precision, [0.5 + 0.5 + 0.25, 2 + 1 + 2])
    np.testing.assert_allclose(
        merged.mean, [(0.5 * 1 + 0.5 * 2 + 0.25 * 5) / 1.25, (0 + 1 * 2 + 2 * 4) / 5]
    )


def test_nwa_by_hand():
    merged = aggregate("nwa", THREE, WEIGHTS)
    np.testing.assert_allclose(merged.mean, [0.5 + 0.5 + 1.25, 0 + 0.5 + 1.0])
    np.testing.assert_allclose(merged.variance, [0.5 + 0.125 + 0.25, 0.125 + 0.0625 + 0.03125])


def test_ws_by_hand():
    merged = aggregate("ws", THREE, WEIGHTS)
    np.testing.assert_allclose(merged.mean, [2.25, 1.5])
    np.testing.assert_allclose(
        merged.variance,
        [0.25 * 1 + 0.0625 * 0.5 + 0.0625 * 1, 0.25 * 0.25 + 0.0625 * 0.25 + 0.0625 * 0.125],
    )


def test_lp_by_hand():
    merged = aggregate("lp", THREE, WEIGHTS)
    np.testing.assert_allclose(merged.mean, [2.25, 1.5])
    first = 0.5 * (1 + 1.25**2) + 0.25 * (0.5 + 0.25**2) + 0.25 * (1 + 2.75**2)
    second = 0.5 * (0.25 + 1.5**2) + 0.25 * (0.25 + 0.5**2) + 0.25 * (0.125 + 2.5**2)
    np.testing.assert_allclose(merged.variance, [first, second], rtol=1e-6)


def test_conflation_by_hand():
    merged = aggregate("conflation", THREE, WEIGHTS)
    np.testing.assert_allclose(merged.precision, [4, 16])
    np.testing.assert_allclose(merged.mean, [(1 * 1 + 2 * 2 + 1 * 5) / 4, (0 + 4 * 2 + 8 * 4) / 16])


def test_wc_by_hand():
    merged = aggregate("wc", THREE, WEIGHTS)
    np.testing.assert_allclose(merged.mean, [2.75 / 1.25, 10 / 5])
    np.testing.assert_allclose(merged.variance, [0.5 / 1.25, 0.5 / 5])


def test_w2_by_hand():
    merged = aggregate("w2", THREE, WEIGHTS)
    np.testing.assert_allclose(merged.mean, [2.25, 1.5])
    first = 0.5 * 1 + 0.25 * 0.5**0.5 + 0.25 * 1
    second = 0.5 * 0.5 + 0.25 * 0.5 + 0.25 * 0.125**0.5
    np.testing.assert_allclose(merged.variance, [first**2, second**2], rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(2, 6))
def test_no_gaussian_is_nearer_to_the_clients_than_w2s(seed, clients):
    """The sum of w_k W2(q, q_k)^2 rises whichever way the merged mean and sigma are moved."""
    rng = np.random.default_rng(seed)
    posteriors = random_posteriors(rng, clients, 20)
    weights = rng.dirichlet(np.ones(clients))
    merged = aggregate("w2", posteriors, weights)

    def distance(mean, sigma):
        squares = [
            np.square(mean - one.mean) + np.square(sigma - one.variance**0.5) for one in posteriors
        ]
        return float(weights @ np.sum(squares, axis=1, dtype=np.float64))

    mean = merged.mean.astype(np.float64)
    sigma = merged.variance.astype(np.float64) ** 0.5
    there = distance(mean, sigma)
    aside = 0.01 * rng.standard_normal((2, 20))
    assert distance(mean + aside[0], sigma) > there
    assert distance(mean, sigma + aside[1]) > there


def test_dwc_by_hand_keeps_and_counts_what_has_no_positive_precision():
    """s = [4 - 2 * 0.5, 16 - 2 * 7] = [3, 2].

    With a start twice as certain the second is 16 - 28 and stays.
    """
    found = aggregate_noting("dwc", THREE, WEIGHTS, START)
    merged = found.posterior
    kept = found.kept_coordinates
    np.testing.assert_allclose(merged.precision, [3, 2])
    np.testing.assert_allclose(merged.mean, [(10 - 1) / 3, (40 - 14) / 2])
    assert kept == 0
    found = aggregate_noting("dwc", THREE, WEIGHTS, Posterior([1.0, 1.5], [0.5, 14.0]))
    merged = found.posterior
    kept = found.kept_coordinates
    np.testing.assert_allclose(merged.precision, [3, 14])
    np.testing.assert_allclose(merged.mean, [3, 1.5])
    assert kept == 1
    with pytest.raises(ValueError, match="dwc needs the server's posterior"):
        aggregate("dwc", THREE, WEIGHTS)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(2, 6))
def test_the_rules_stand_to_each_other_as_their_formulas_say(seed, clients):
    rng = np.random.default_rng(seed)
    posteriors = random_posteriors(rng, clients, 20)
    weights = rng.dirichlet(np.ones(clients))
    merged = {rule: aggregate(rule, posteriors, weights) for rule in RULES if rule != "dwc"}
    assert (merged["lp"].variance >= merged["nwa"].variance * (1 - 1e-6)).all()
    assert (merged["nwa"].variance >= merged["ws"].variance * (1 - 1e-6)).all()
    assert (merged["nwa"].variance >= merged["w2"].variance * (1 - 1e-6)).all()
    assert (merged["w2"].variance >= merged["product"].variance * (1 - 1e-6)).all()
    equal = aggregate("product", posteriors, np.full(clients, 1 / clients))
    np.testing.assert_allclose(merged["conflation"].mean, equal.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(merged["conflation"].precision, clients * equal.precision, rtol=1e-5)
    np.testing.assert_array_equal(merged["wc"].mean, merged["product"].mean)
    heaviest = posteriors[int(weights.argmax())]
    assert (merged["wc"].variance <= heaviest.variance * (1 + 1e-6)).all()
    flat = Posterior(rng.standard_normal(20), np.full(20, 1e-30))
    found = aggregate_noting("dwc", posteriors, weights, flat)
    consolidated = found.posterior
    kept = found.kept_coordinates
    np.testing.assert_allclose(consolidated.mean, merged["conflation"].mean, rtol=1e-6)
    np.testing.assert_allclose(consolidated.precision, merged["conflation"].precision, rtol=1e-6)
    assert kept == 0


def test_conflation_is_the_product_of_the_densities():
    """The log of the product of two densities less the merged one's is the same everywhere."""
    one = Posterior([0.3], [2.0])
    other = Posterior([-1.0], [5.0])
    merged = aggregate("conflation", [one, other], [0.5, 0.5])
    places = np.linspace(-3, 3, 7)

    def log_density(posterior):
        return -0.5 * posterior.precision[0] * np.square(places - posterior.mean[0])

    gap = log_density(one) + log_density(other) - log_density(merged)
    np.testing.assert_allclose(gap, gap[0], atol=1e-5)


def test_lp_of_large_means_keeps_small_variances():
    posteriors = [Posterior([1000.0], [1e8]), Posterior([1000.0], [1e8])]
    np.testing.assert_allclose(aggregate("lp", posteriors, [0.5, 0.5]).variance, 1e-8, rtol=1e-5)


def test_nwa_averages_points():
    merged = aggregate("nwa", [Posterior([1.0, 3.0]), Posterior([3.0, 5.0])], [0.25, 0.75])
    np.testing.assert_allclose(merged.mean, [2.5, 4.5])
    assert merged.precision is None


def random_posteriors(rng: np.random.Generator, clients: int, size: int) -> list[Posterior]:
    return [
        Posterior(rng.standard_normal(size), 10 ** rng.uniform(-3, 6, size)) for _ in range(clients)
    ]


def test_product_agrees_with_a_float64_reference():
    rng = np.random.default_rng(0)
    posteriors = random_posteriors(rng, 30, 100_003)  # not a multiple of the block size
    weights = rng.dirichlet(np.ones(30))
    precision = np.stack([p.precision for p in posteriors]).astype(np.float64)
    mean = np.stack([p.mean for p in posteriors]).astype(np.float64)
    total = (weights[:, None] * precision).sum(0)
    merged = aggregate("product", iter(posteriors), weights)
    np.testing.assert_allclose(merged.precision, total, rtol=1e-6)
    np.testing.assert_allclose(
        merged.mean, (weights[:, None] * precision * mean).sum(0) / total, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(1, 6))
def test_the_order_of_clients_does_not_matter_and_one_client_returns_itself(rule, seed, clients):
    rng = np.random.default_rng(seed)
    posteriors = random_posteriors(rng, clients, 20)
    weights = rng.dirichlet(np.ones(clients))
    previous = Posterior(rng.standard_normal(20), np.full(20, 1e-4))
    order = rng.permutation(clients)
    one = aggregate(rule, posteriors, weights, previous)
    other = aggregate(rule, [posteriors[i] for i in order], weights[order], previous)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.precision, other.precision, rtol=1e-5)
    alone = aggregate(rule, posteriors[:1], [1.0], previous)
    np.testing.assert_allclose(alone.mean, posteriors[0].mean, rtol=1e-6)
    np.testing.assert_allclose(alone.precision, posteriors[0].precision, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_memory_does_not_depend_on_the_number_of_clients(rule):
    size = 200_000
    previous = Posterior(np.zeros(size), np.full(size, 0.5))

    def peak(clients: int) -> int:
        stream = (
            Posterior(np.full(size, k, np.float32), np.ones(size, np.float32))
            for k in range(clients)
        )
        tracemalloc.start()
        aggregate(rule, stream, np.full(clients, 1 / clients), previous)
        measured = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return measured

    assert peak(50) < 1.1 * peak(5)


def test_merging_hessians_differs_from_merging_precisions_by_the_weight_decay_only():
    """Algorithm 2 weighs means by h, Eq. 16 by s = ess (h + wd).

    At wd = 2e-4 and h near 1 the means agree to 1e-3.
    """
    rng = np.random.default_rng(1)
    hessians = [rng.uniform(0.5, 2.0, 1000) for _ in range(10)]
    means = [rng.standard_normal(1000) for _ in range(10)]
    weights = np.full(10, 0.1)
    ess = 5000
    decay = 2e-4
    by_precision = aggregate(
        "product",
        [Posterior(m, ess * (h + decay)) for m, h in zip(means, hessians, strict=True)],
        weights,
    )
    by_hessian = aggregate(
        "product", [Posterior(m, h) for m, h in zip(means, hessians, strict=True)], weights
    )
    np.testing.assert_allclose(by_precision.mean, by_hessian.mean, atol=1e-3)
    np.testing.assert_allclose(
        by_precision.precision, ess * (by_hessian.precision + decay), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("rule", "posteriors", "weights", "says"),
    [
        ("prodcut", THREE, WEIGHTS, "did you mean product"),
        ("product", THREE, [0.5, 0.5, 0.5], "sum to 1"),
        ("product", THREE, [1.5, -0.25, -0.25], "non-negative"),
        *(
            (rule, [Posterior([1.0])], [1.0], f"rule {rule} needs precisions")
            for rule in RULES
            if rule != "nwa"
        ),
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


def test_distance_weighs_by_the_inverse_divergence_from_the_server():
    """KL between unit-variance Gaussians is half the squared distance.

    0.5, 2, 8 for means 1, 2, 4 from 0.
    """
    clients = [Posterior([m], [1.0]) for m in (1.0, 2.0, 4.0)]
    weights = weigh("distance", clients, [1, 1, 1], Posterior([0.0], [1.0]))
    np.testing.assert_allclose(weights, np.array([16, 4, 1]) / 21, rtol=1e-6)


def test_distance_is_the_divergence_of_the_server_from_the_client_not_the_other_way():
    clients = [Posterior([0.0], [4.0]), Posterior([0.0], [0.25])]
    server = Posterior([0.0], [1.0])
    expected = np.array([1 / (0.5 * (4 - 1 - np.log(4))), 1 / (0.5 * (0.25 - 1 + np.log(4)))])
    np.testing.assert_allclose(
        weigh("distance", clients, [1, 1], server), expected / expected.sum(), rtol=1e-6
    )
    with pytest.raises(ValueError, match="distance needs the server's posterior"):
        weigh("distance", clients, [1, 1])


def test_max_discrepancy_weighs_by_the_inverse_divergence_from_the_nearest_other():
    """Means 0, 1, 3: nearest others at 1, 1 and 2, so KLs 0.5, 0.5, 2."""
    clients = [Posterior([m], [1.0]) for m in (0.0, 1.0, 3.0)]
    np.testing.assert_allclose(
        weigh("max-discrepancy", iter(clients), [1, 1, 1]), np.array([4, 4, 1]) / 9, rtol=1e-6
    )


def test_farthest_weighs_by_the_inverse_divergence_from_the_farthest_other():
    """Means 0, 1, 3: farthest others at 3, 2 and 3, so KLs 4.5, 2, 4.5."""
    clients = [Posterior([m], [1.0]) for m in (0.0, 1.0, 3.0)]
    np.testing.assert_allclose(
        weigh("farthest", iter(clients), [1, 1, 1]), np.array([4, 9, 4]) / 17, rtol=1e-6
    )


@pytest.mark.parametrize("rule", WEIGHTINGS)
def test_equal_clients_get_equal_weights_and_one_client_all(rule):
    twins = [Posterior([1.0, 2.0], [3.0, 4.0])] * 4
    server = Posterior([0.0, 0.0], [1.0, 1.0])
    np.testing.assert_allclose(weigh(rule, twins, [5] * 4, server), [0.25] * 4)
    np.testing.assert_allclose(weigh(rule, twins[:1], [5], server), [1.0])


@pytest.mark.parametrize("rule", ["max-discrepancy", "farthest", "distance"])
def test_weights_by_divergence_need_precisions(rule):
    with pytest.raises(ValueError, match="needs a precision"):
        weigh(rule, [Posterior([1.0]), Posterior([2.0])], [1, 1], Posterior([0.0]))
