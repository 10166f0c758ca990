"""Robust rules: closed forms, what a minority cannot do, and agreement with byzfl on points."""

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedivon_app.strategies import robust
from tests.strategies.byzfl_points import LIARS, NUMBERS, points

BYZFL = {name: np.array(value) for name, value in json.loads(NUMBERS.read_text()).items()}


def equal(count):
    return np.full(count, 1 / count)


def by_distance(name, cloud, liars):
    """The merged point of a rule that gives weights."""
    gram = cloud @ cloud.T
    weights = {
        "krum": lambda: robust.krum(gram, liars),
        "multi-krum": lambda: robust.multi_krum(gram, liars),
        "geometric-median": lambda: robust.geometric_median(gram, equal(len(cloud))),
        "centred-clipping": lambda: robust.centred_clipping(gram, equal(len(cloud))),
    }[name]()
    return weights @ cloud


def by_coordinate(name, cloud, liars):
    return robust.median(cloud) if name == "median" else robust.trimmed_mean(cloud, liars)


RULES = {
    **dict.fromkeys(("krum", "multi-krum", "geometric-median", "centred-clipping"), by_distance),
    **dict.fromkeys(("median", "trimmed-mean"), by_coordinate),
}


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "krum", "multi-krum"])
def test_rules_agree_with_byzfl(name):
    np.testing.assert_allclose(RULES[name](name, points(), LIARS), BYZFL[name], rtol=1e-9)


def test_geometric_median_agrees_with_byzfl():
    found = by_distance("geometric-median", points(), LIARS)
    np.testing.assert_allclose(found, BYZFL["geometric-median"], rtol=1e-6)


def test_clipping_around_the_origin_agrees_with_byzfl():
    cloud = points()
    weights = robust.centred_clipping(cloud @ cloud.T, equal(len(cloud)), radius=2.0, rounds=3)
    np.testing.assert_allclose(weights @ cloud, BYZFL["centred-clipping"], rtol=1e-9)


def test_mixing_agrees_with_byzfl_and_so_do_rules_after_it():
    cloud = points()
    mixed = robust.mixing(cloud @ cloud.T, LIARS) @ cloud
    np.testing.assert_allclose(mixed, BYZFL["mixing"], rtol=1e-9)
    for name in ("trimmed-mean", "multi-krum"):
        found = RULES[name](name, mixed, LIARS)
        np.testing.assert_allclose(found, BYZFL[f"mixing, {name}"], rtol=1e-9)


@pytest.mark.parametrize(("count", "share", "liars"), [(10, 0.3, 3), (10, 0.21, 3), (4, 0.4, 1)])
def test_the_number_of_liars_that_is_withstood(count, share, liars):
    assert robust.most_liars(count, share) == liars
    assert robust.most_liars(2, share) == robust.most_liars(1, share) == 0


def test_three_points_on_a_line():
    line = np.array([[0.0], [1.0], [9.0]])
    assert by_distance("geometric-median", line, 1) == pytest.approx([1.0], abs=1e-6)
    assert by_distance("krum", line, 1) == pytest.approx([0.0])
    assert by_distance("multi-krum", line, 1) == pytest.approx([0.5])
    assert by_coordinate("trimmed-mean", line, 1) == pytest.approx([1.0])
    low, high = robust.trimmed_range(line, 0)
    assert (low, high) == (0.0, 9.0)


def test_half_of_the_replies_at_one_place_are_the_geometric_median():
    cloud = np.array([[1.0, 2.0]] * 3 + [[50.0, -3.0], [0.0, 90.0]])
    np.testing.assert_allclose(by_distance("geometric-median", cloud, 2), [1.0, 2.0], atol=1e-6)


clouds = st.tuples(st.integers(3, 12), st.integers(1, 6), st.integers(0, 10_000)).map(
    lambda drawn: np.random.default_rng(drawn[2]).standard_normal(drawn[:2])
)


@pytest.mark.parametrize("name", RULES)
@settings(deadline=None, max_examples=25)
@given(clouds)
def test_replies_that_agree_are_what_comes_out(name, cloud):
    same = np.repeat(cloud[:1], len(cloud), axis=0)
    liars = robust.most_liars(len(cloud), 0.4)
    np.testing.assert_allclose(RULES[name](name, same, liars), same[0], atol=1e-7)


@pytest.mark.parametrize("name", RULES)
@settings(deadline=None, max_examples=25)
@given(clouds, st.randoms(use_true_random=False))
def test_the_order_of_the_replies_does_not_matter(name, cloud, random):
    liars = robust.most_liars(len(cloud), 0.4)
    if "krum" in name:
        assume(len(cloud) - liars > 3)  # with one neighbour each, the nearest two are as good
    order = list(range(len(cloud)))
    random.shuffle(order)
    one = RULES[name](name, cloud, liars)
    other = RULES[name](name, cloud[order], liars)
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
@settings(deadline=None, max_examples=25)
@given(clouds, st.floats(10, 1e9))
def test_one_liar_that_goes_to_infinity_moves_nothing_beyond_the_honest(name, cloud, far):
    """The merged point stays within reach of the honest ones, however far the liar goes."""
    cloud[0] = far * cloud[0]
    liars = robust.most_liars(len(cloud), 0.4)
    honest = cloud[1:]
    centre = honest.mean(axis=0)
    reach = np.linalg.norm(honest - centre, axis=1).max() + np.linalg.norm(centre)
    moved = np.linalg.norm(RULES[name](name, cloud, liars) - centre)
    assert moved <= 4 * reach + 1e-6


@settings(deadline=None, max_examples=25)
@given(clouds, st.floats(0, 1e6))
def test_the_trimmed_range_is_vouched_for_by_the_honest(values, far):
    liars = robust.most_liars(len(values), 0.4)
    honest = values[liars:]
    lies = np.concatenate([values[:liars] + far, honest])
    low, high = robust.trimmed_range(lies, liars)
    assert (low >= honest.min(axis=0)).all() and (high <= honest.max(axis=0)).all()


def test_replies_that_say_the_same_have_one_voice():
    cloud = np.vstack([np.eye(5), [2 * np.eye(5)[4], 0.1 * np.eye(5)[4]]])
    found = robust.voices(cloud @ cloud.T, 0.95)
    np.testing.assert_allclose(found, [1, 1, 1, 1, 1 / 3, 1 / 3, 1 / 3])
    agreeing = np.ones((4, 3))  # nothing sets anybody apart
    np.testing.assert_array_equal(robust.voices(agreeing @ agreeing.T, 0.95), np.ones(4))
    np.testing.assert_array_equal(robust.voices(np.zeros((3, 3)), 0.95), np.ones(3))
