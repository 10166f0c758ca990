"""Partition rules: disjoint, complete where promised, seeded; no empty client, no endless loop."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedivon_app.datasets import allocation
from fedivon_app.datasets.partition import RULES, matching_test, options_of, partition
from fedivon_app.datasets.rules import heterogeneous_shares

CASES = {
    "iid": {},
    "shards": {"shards_per_client": 2},
    "dirichlet": {"alpha": 0.5},
    "labels": {"labels_per_client": 3},
    "two-class": {"per_class": 2},
    "heterogeneous": {"concentration": 0.5},
    "superclass": {},
    "natural": {},
}
COMPLETE = {"iid", "shards", "dirichlet", "labels", "heterogeneous", "natural"}


def options_for(rule, labels, num_clients):
    """Options that suit 6 labels and the given number of clients."""
    extra = {
        "superclass": {"superclasses": [0, 0, 0, 1, 1, 1]},
        "natural": {"owners": np.arange(len(labels)) % num_clients},
    }
    return CASES[rule] | extra.get(rule, {})


@st.composite
def problems(draw):
    """Labels 0..5, 20 to 60 examples of each, in random order, and 2 to 12 clients."""
    sizes = draw(st.lists(st.integers(20, 60), min_size=6, max_size=6))
    labels = np.random.default_rng(draw(st.integers(0, 99))).permutation(
        np.repeat(np.arange(6), sizes)
    )
    return labels, draw(st.integers(2, 12)), draw(st.integers(0, 10_000))


@pytest.mark.parametrize("rule", sorted(RULES))
@settings(max_examples=25, deadline=None)
@given(problem=problems())
def test_every_rule_gives_disjoint_sorted_nonempty_parts_and_the_same_ones_for_the_same_seed(
    rule, problem
):
    labels, num_clients, seed = problem
    options = options_for(rule, labels, num_clients)
    parts = partition(rule, labels, num_clients, seed, **options)
    assert len(parts) == num_clients
    assert all(part.dtype == np.int64 and len(part) and np.all(np.diff(part) > 0) for part in parts)
    joined = np.concatenate(parts)
    assert len(np.unique(joined)) == len(joined)
    assert joined.min() >= 0 and joined.max() < len(labels)
    if rule in COMPLETE:
        assert len(joined) == len(labels)
    again = partition(rule, labels, num_clients, seed, **options)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


@pytest.mark.parametrize("rule", sorted(set(RULES) - {"natural"}))
def test_another_seed_gives_another_partition(rule):
    labels = np.tile(np.arange(6), 50)
    one, other = (
        partition(rule, labels, 8, seed, **options_for(rule, labels, 8)) for seed in (1, 2)
    )
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_iid_parts_are_near_equal_and_a_fraction_takes_that_many():
    labels = np.zeros(103, int)
    assert sorted({len(part) for part in partition("iid", labels, 10, 0)}) == [10, 11]
    assert sum(len(part) for part in partition("iid", labels, 10, 0, fraction=0.5)) == 52


def test_shards_of_mcmahan_give_each_client_at_most_two_labels_when_shards_do_not_straddle():
    labels = np.repeat(np.arange(10), 60)
    parts = partition("shards", labels, 10, 3, shards_per_client=2)
    assert [len(part) for part in parts] == [60] * 10
    assert all(len(np.unique(labels[part])) <= 2 for part in parts)


@settings(max_examples=25, deadline=None)
@given(
    num_clients=st.integers(1, 30),
    per_client=st.integers(1, 5),
    low=st.integers(1, 6),
    spread=st.integers(0, 6),
    seed=st.integers(0, 999),
)
def test_sized_shards_have_distinct_labels_sizes_in_bounds_and_labels_spread_evenly(
    num_clients, per_client, low, spread, seed
):
    labels = np.tile(np.arange(7), 300)
    parts = partition(
        "shards",
        labels,
        num_clients,
        seed,
        shards_per_client=per_client,
        shard_sizes=(low, low + spread),
    )
    counts = np.array([np.bincount(labels[part], minlength=7) for part in parts])
    assert np.all((counts > 0).sum(axis=1) == per_client)
    assert counts[counts > 0].min() >= low and counts.max() <= low + spread
    holders = (counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1


def test_sized_shards_use_every_size_between_the_bounds():
    labels = np.tile(np.arange(10), 1000)
    parts = partition("shards", labels, 200, 0, shards_per_client=3, shard_sizes=(5, 8))
    sizes = np.concatenate([np.unique(labels[part], return_counts=True)[1] for part in parts])
    assert len(sizes) == 600
    assert np.all(np.bincount(sizes)[5:] > 100)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 9999))
def test_sized_shards_fit_a_supply_that_only_the_mean_size_allows(seed):
    labels = np.repeat(np.arange(4), 22)  # 4 clients x 5.5 on average
    parts = partition("shards", labels, 4, seed, shards_per_client=4, shard_sizes=(1, 10))
    assert all(len(np.unique(labels[part])) == 4 for part in parts)


def test_sized_shards_give_rare_labels_to_fewer_clients():
    labels = np.repeat(np.arange(3), [10, 100, 100])
    parts = partition("shards", labels, 10, 0, shards_per_client=2, shard_sizes=(5, 5))
    holders = np.array([np.bincount(labels[part], minlength=3) > 0 for part in parts]).sum(axis=0)
    assert holders.tolist() == [2, 9, 9]


def test_two_class_gives_exactly_two_classes_of_the_size_asked_for():
    labels = np.repeat(np.arange(10), 200)
    for part in partition("two-class", labels, 20, 5, per_class=50):
        assert np.unique(labels[part], return_counts=True)[1].tolist() == [50, 50]


def test_two_class_names_the_largest_size_that_would_do():
    labels = np.repeat(np.arange(4), [30, 40, 50, 60])
    with pytest.raises(
        ValueError, match="largest possible per_class is 20"
    ):  # 1 + 2 + 2 + 3 shards for 4 clients
        partition("two-class", labels, 4, 0, per_class=25)
    partition("two-class", labels, 4, 0, per_class=20)


def test_two_class_says_so_if_no_size_would_do():
    with pytest.raises(ValueError, match="fewer clients"):
        partition("two-class", np.array([0, 0, 0, 1]), 3, 0, per_class=1)


def test_dirichlet_with_a_large_alpha_is_nearly_even_and_with_a_small_one_is_not():
    labels = np.repeat(np.arange(5), 1000)
    even = partition("dirichlet", labels, 5, 0, alpha=1e6)
    assert all(np.all(abs(np.bincount(labels[part]) - 200) < 10) for part in even)
    skewed = partition("dirichlet", labels, 5, 0, alpha=0.05)
    assert max(np.bincount(labels[part], minlength=5).max() for part in skewed) > 900


def test_dirichlet_keeps_min_examples_or_raises_after_a_bounded_number_of_draws():
    labels = np.repeat(np.arange(2), 50)
    assert (
        min(len(part) for part in partition("dirichlet", labels, 5, 0, alpha=0.5, min_examples=8))
        >= 8
    )
    with pytest.raises(
        ValueError, match=r"dirichlet: no draw in 1000 .* 50 clients .* alpha 0.001"
    ):
        partition("dirichlet", labels, 50, 0, alpha=0.001)


@settings(max_examples=25, deadline=None)
@given(problem=problems(), alpha=st.sampled_from([1e-3, 0.1, 0.5, 5.0, 1e6]))
def test_dirichlet_with_equal_sizes_gives_all_examples_away_in_parts_of_one_size(problem, alpha):
    labels, num_clients, seed = problem
    options = {"alpha": alpha, "equal_sizes": True}
    parts = partition("dirichlet", labels, num_clients, seed, **options)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    again = partition("dirichlet", labels, num_clients, seed, **options)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


def test_dirichlet_with_equal_sizes_draws_the_labels_of_each_client():
    """Twenty clients of 500 examples: even labels for a large alpha, near one for a small one."""
    labels = np.repeat(np.arange(10), 1000)

    def largest(alpha):
        parts = partition("dirichlet", labels, 20, 0, alpha=alpha, equal_sizes=True)
        assert {len(part) for part in parts} == {500}
        return [np.bincount(labels[part], minlength=10).max() for part in parts]

    assert max(largest(1e6)) < 60
    assert np.mean(largest(0.5)) > 150
    assert np.median(largest(0.01)) > 400


def test_dirichlet_is_unequal_unless_told_and_keeps_min_examples_either_way():
    labels = np.repeat(np.arange(10), 100)
    sizes = [len(part) for part in partition("dirichlet", labels, 10, 0, alpha=0.5)]
    assert max(sizes) > 1.5 * min(sizes)
    same = partition("dirichlet", labels, 10, 0, alpha=0.5, equal_sizes=False)
    assert [len(part) for part in same] == sizes
    with pytest.raises(ValueError, match="dirichlet: no draw in 1000 gave each of 10 clients 101"):
        partition("dirichlet", labels, 10, 0, alpha=0.5, equal_sizes=True, min_examples=101)


def test_heterogeneous_raises_after_a_bounded_number_of_draws():
    with pytest.raises(ValueError, match="heterogeneous: no draw in 1000"):
        partition("heterogeneous", np.repeat(np.arange(2), 20), 40, 0)


@settings(max_examples=25, deadline=None)
@given(clients=st.integers(1, 30), classes=st.integers(1, 12), seed=st.integers(0, 999))
def test_heterogeneous_shares_of_a_class_add_up_to_one(clients, classes, seed):
    shares = heterogeneous_shares(clients, classes, 0.5, np.random.default_rng(seed))
    assert shares.shape == (clients, classes)
    assert shares.min() >= 0
    assert np.allclose(shares.sum(axis=0), 1)


def test_heterogeneous_takes_a_fraction():
    labels = np.repeat(np.arange(10), 100)
    assert sum(len(part) for part in partition("heterogeneous", labels, 5, 0, fraction=0.1)) == 100


@settings(max_examples=25, deadline=None)
@given(num_clients=st.integers(1, 20), per_client=st.integers(1, 10), seed=st.integers(0, 999))
def test_labels_gives_exactly_n_labels_a_client_and_every_label_to_somebody(
    num_clients, per_client, seed
):
    assume(num_clients * per_client >= 10)
    labels = np.tile(np.arange(10), 50)
    parts = partition("labels", labels, num_clients, seed, labels_per_client=per_client)
    assert all(len(np.unique(labels[part])) == per_client for part in parts)
    assert sum(len(part) for part in parts) == len(labels)


def test_labels_cuts_every_class_at_the_same_places():
    labels = np.tile(np.arange(4), 10_000)
    parts = partition("labels", labels, 5, 1, labels_per_client=4)
    counts = np.array([np.bincount(labels[part], minlength=4) for part in parts])
    assert np.all(counts == counts[:, :1])
    assert counts[:, 0].max() > 2 * counts[:, 0].min()


def test_labels_complains_when_the_labels_cannot_all_be_held_or_do_not_exist():
    labels = np.tile(np.arange(10), 5)
    with pytest.raises(ValueError, match="2 clients with 3 labels each cannot hold all 10 labels"):
        partition("labels", labels, 2, 0, labels_per_client=3)
    with pytest.raises(ValueError, match="labels_per_client is 11, but the data have 10"):
        partition("labels", labels, 2, 0, labels_per_client=11)
    with pytest.raises(ValueError, match="labels: no draw in 1000"):
        partition("labels", labels, 6, 0, labels_per_client=10)


def test_superclass_gives_one_subclass_of_each_superclass_and_all_examples_of_held_ones():
    fine = np.tile(np.arange(20), 40)
    table = np.arange(20) % 4
    parts = partition("superclass", fine, 6, 0, superclasses=table)
    for part in parts:
        held = np.unique(fine[part])
        assert sorted(table[held]) == [0, 1, 2, 3]
    held = np.unique(fine[np.concatenate(parts)])
    assert sum(len(part) for part in parts) == 40 * len(held)


def test_natural_follows_the_owners_and_complains_when_they_do_not_fit():
    labels = np.zeros(6, int)
    owners = np.array([2, 0, 1, 1, 0, 2])
    assert [part.tolist() for part in partition("natural", labels, 3, 0, owners=owners)] == [
        [1, 4],
        [2, 3],
        [0, 5],
    ]
    with pytest.raises(ValueError, match=r"divided over 3 clients .* num_clients is 2"):
        partition("natural", labels, 2, 0, owners=owners)
    with pytest.raises(ValueError, match="client 3 of 4 owns no example"):
        partition("natural", labels, 4, 0, owners=owners)
    with pytest.raises(ValueError, match="there are 6 examples"):
        partition("natural", labels, 2, 0, owners=owners[:5])


@pytest.mark.parametrize(
    ("rule", "num_clients", "options", "message"),
    [
        ("dirichelt", 2, {}, "no partition rule 'dirichelt': did you mean dirichlet"),
        (
            "dirichlet",
            2,
            {"alhpa": 1},
            "dirichlet has no option 'alhpa': did you mean alpha.*alpha, equal_sizes, min_examples",
        ),
        ("dirichlet", 2, {}, "needs the option alpha"),
        ("dirichlet", 2, {"alpha": 0}, "alpha must be a number above 0, not 0"),
        ("dirichlet", 2, {"alpha": float("nan")}, "alpha must be a number above 0, not nan"),
        ("dirichlet", 2, {"alpha": "much"}, "alpha must be a number above 0, not 'much'"),
        ("iid", 0, {}, "num_clients must be a whole number of at least 1, not 0"),
        ("iid", 2.5, {}, "num_clients must be a whole number of at least 1, not 2.5"),
        ("iid", 31, {}, "31 clients are more than the 30 examples"),
        ("iid", 2, {"fraction": 1.5}, "fraction must be a number above 0 and at most 1, not 1.5"),
        ("iid", 20, {"fraction": 0.1}, "0.1 of 30 examples is 3, too few for 20 clients"),
        ("heterogeneous", 2, {"concentration": -1}, "concentration must be a number above 0"),
        (
            "shards",
            2,
            {"shards_per_client": 0},
            "shards_per_client must be a whole number of at least 1",
        ),
        (
            "shards",
            20,
            {"shards_per_client": 2},
            "20 clients x 2 shards are more than the 30 examples",
        ),
        (
            "shards",
            2,
            {"shard_sizes": (5, 2)},
            "upper of shard_sizes must be a whole number of at least 5, not 2",
        ),
        ("shards", 2, {"shard_sizes": 5}, "shard_sizes must be two whole numbers"),
        (
            "shards",
            2,
            {"shard_sizes": (9, 11)},
            "more than the data can supply .30 examples, 3 labels",
        ),
        ("shards", 2, {"shards_per_client": 4, "shard_sizes": (1, 2)}, "only 3 labels"),
        ("superclass", 2, {"superclasses": [0, 1]}, "superclass of each label 0 to 2"),
    ],
)
def test_wrong_settings_are_named(rule, num_clients, options, message):
    labels = np.repeat(np.arange(3), 10)
    with pytest.raises(ValueError, match=message):
        partition(rule, labels, num_clients, 0, **options)


def test_wrong_labels_and_seeds_are_named():
    with pytest.raises(ValueError, match="labels must be one whole number an example"):
        partition("iid", np.array([0.5, 1.0]), 1, 0)
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0, not -1"):
        partition("iid", np.array([0, 1]), 1, -1)


def test_options_of_reads_the_signature():
    assert options_of("shards") == {"shards_per_client", "shard_sizes"}
    assert options_of("two-class") == {"per_class"}
    with pytest.raises(ValueError, match="did you mean shards"):
        options_of("shard")


def test_even_quotas_fill_up_to_the_room_there_is():
    quotas = allocation.even_quotas(np.array([1, 5, 9]), 9, np.random.default_rng(0))
    assert sorted(quotas.tolist()) == [1, 4, 4]


def test_matching_test_takes_the_examples_of_held_labels():
    test = matching_test([np.array([1, 1]), np.array([0, 2])], np.array([0, 1, 2, 1, 3]))
    assert [part.tolist() for part in test] == [[1, 3], [0, 2]]
