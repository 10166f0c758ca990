"""A source dealt to clients: held-out rows, caps, and test parts that match."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedivon_app.datasets.partition import split


def source(**arrays):
    """What `split` needs of a source: 60 training and 12 test examples of 6 labels."""
    plain = {
        "name": "plain",
        "y_train": np.tile(np.arange(6), 10),
        "y_test": np.tile(np.arange(6), 2),
    }
    nothing = dict.fromkeys(("subclass_train", "subclass_test", "owner_train", "owner_test"))
    return SimpleNamespace(**(nothing | plain | arrays))


def test_split_holds_out_examples_that_no_client_sees_and_leaves_none_over():
    made = split(source(), "iid", 4, 0, holdout=7)
    assert len(made.holdout) == 7
    assert sorted(np.concatenate([made.holdout, *made.train]).tolist()) == list(range(60))
    assert not np.array_equal(made.holdout, split(source(), "iid", 4, 1, holdout=7).holdout)


def test_split_caps_the_examples_of_a_client_and_matches_its_test_part_to_what_is_left():
    full = split(source(), "labels", 3, 0, labels_per_client=4)
    capped = split(source(), "labels", 3, 0, labels_per_client=4, max_examples=2)
    labels = source().y_train
    for whole, part, test in zip(full.train, capped.train, capped.test, strict=True):
        assert len(part) == 2 and set(part) <= set(whole)
        assert set(source().y_test[test]) == set(labels[part])


def test_split_by_superclass_matches_subclasses_and_learns_the_superclasses_from_the_source():
    fine_train = np.tile(np.arange(6), 10)
    fine_test = np.tile(np.arange(6), 2)
    coarse = source(
        y_train=fine_train // 3,
        y_test=fine_test // 3,
        subclass_train=fine_train,
        subclass_test=fine_test,
    )
    made = split(coarse, "superclass", 4, 0)
    for train, test in zip(made.train, made.test, strict=True):
        assert sorted(np.unique(fine_train[train]) // 3) == [0, 1]
        assert set(fine_test[test]) == set(fine_train[train])


def test_split_by_owner_gives_each_client_its_own_test_rows_also_with_a_holdout():
    owner_train = np.repeat(np.arange(3), 20)
    owner_test = np.repeat(np.arange(3), 4)
    made = split(source(owner_train=owner_train, owner_test=owner_test), "natural", 3, 0, holdout=5)
    for client, (train, test) in enumerate(zip(made.train, made.test, strict=True)):
        assert set(owner_train[train]) == {client} and not set(train) & set(made.holdout)
        assert test.tolist() == list(range(4 * client, 4 * client + 4))


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        ("natural", {}, "natural needs a source that comes divided over clients; plain does not"),
        ("natural", {"owners": [0]}, "owners comes from the source"),
        ("superclass", {}, "superclass needs a source with subclasses"),
        ("iid", {"holdout": 60}, "holdout is 60, but there are only 60"),
        ("iid", {"holdout": -1}, "holdout must be a whole number of at least 0"),
        ("iid", {"max_examples": 0}, "max_examples must be a whole number of at least 1"),
        ("iidd", {}, "did you mean iid"),
    ],
)
def test_split_names_what_is_wrong(rule, options, message):
    with pytest.raises(ValueError, match=message):
        split(source(), rule, 3, 0, **options)


def test_a_subclass_of_two_superclasses_is_an_error():
    fine = np.tile(np.arange(6), 10)
    with pytest.raises(ValueError, match="subclass 0 occurs in more than one superclass"):
        split(
            source(subclass_train=fine, subclass_test=fine[:12], y_train=np.repeat([0, 1], 30)),
            "superclass",
            2,
            0,
        )
