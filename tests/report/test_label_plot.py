"""The picture of labels by client shows what the clients of a run get."""

from itertools import pairwise

import numpy as np
import pytest

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.methods import settings_of
from fedivon_app.report.label_plot import (
    NAME_LENGTH,
    NAMED,
    Scale,
    divided,
    label_counts,
    label_figure,
)
from tests.cli.helpers import write_npz

EXAMPLES = 1442  # that the digits have for training
NPZ = ["dataset=null", "data.source=npz", "data.clients=4", "clients_per_round=null"]


def settings(*words, experiment="demo"):
    return compose(settings_of, experiment, None, words)


def superclasses(tmp_path):
    """The settings of twelve subclasses below three superclasses."""
    path = tmp_path / "coarse.npz"
    fine = np.arange(240) % 12
    pictures = np.zeros((240, 4, 4), np.uint8)
    np.savez(
        path,
        x_train=pictures,
        y_train=fine // 4,
        subclass_train=fine,
        x_test=pictures,
        y_test=fine // 4,
        subclass_test=fine,
    )
    return settings(*NPZ, "data.partition=superclass", f"data.path={path}")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("data.partition=dirichlet", "data.alpha=0.2", "seed=5"),
        ("data.holdout=100", "data.max_examples=30"),
        ("data.label_noise=0.5",),
    ],
)
def test_counts_are_those_of_the_partitions_of_a_run(words):
    one = settings(*words)
    counts = label_counts(one)
    assert counts.shape == (20, 10)
    for client, row in enumerate(counts):
        partition = partition_of(one, {"partition-id": client, "num-partitions": 20})
        own = partition.source.y_train[partition.train]
        assert row.tolist() == [int((own == label).sum()) for label in range(10)]
        assert row.sum() == len(partition.train)


def test_everything_is_somebodys_unless_it_is_held_out_or_capped():
    assert label_counts(settings()).sum() == EXAMPLES
    assert label_counts(settings("data.holdout=100")).sum() == EXAMPLES - 100
    assert label_counts(settings("data.max_examples=30")).sum(axis=1).tolist() == [30] * 20


def test_a_source_that_comes_divided_is_counted_as_it_is():
    counts = label_counts(settings(experiment="synthetic-personal"))
    source = divided(settings(experiment="synthetic-personal")).source
    assert counts.sum(axis=1).tolist() == np.bincount(source.owner_train).tolist()
    assert counts.sum(axis=0).tolist() == np.bincount(source.y_train, minlength=10).tolist()


def test_superclasses_are_the_labels_that_are_learned(tmp_path):
    counts = label_counts(superclasses(tmp_path))
    assert counts.shape == (4, 3) and (counts > 0).all()
    train = divided(superclasses(tmp_path)).split.train
    assert counts.sum(axis=1).tolist() == [len(part) for part in train]


def test_labels_that_no_example_has_are_counted_too(tmp_path):
    write_npz(tmp_path / "mine.npz", labels=np.arange(40) % 3)
    path = f"data.path={tmp_path / 'mine.npz'}"
    counts = label_counts(settings(*NPZ, "data.partition=iid", path, "data.num_classes=12"))
    assert counts.shape == (4, 12) and not counts[:, 3:].any()


def test_data_that_nobody_divides_are_said_so():
    nodes = settings("dataset=null", "data.source=nodes")
    with pytest.raises(SettingsError, match="`nodes`: every node has a file of its own"):
        label_counts(nodes)
    with pytest.raises(SettingsError, match="--set data.clients=10"):
        label_counts(settings(experiment="quickstart"))


def drawn(counts, names=None):
    """The axes of a figure, and the cells in it as they are drawn."""
    figure = label_figure(np.asarray(counts), names, "title")
    axes = figure.axes[0]
    (mesh,) = axes.collections
    return figure, axes, mesh


def test_clients_are_across_and_labels_are_down():
    counts = [[5, 0, 20], [0, 300, 0]]
    figure, axes, mesh = drawn(counts, ["cat", "dog", "fox"])
    figure.draw_without_rendering()
    cells = mesh.get_array()
    assert cells.filled(0).tolist() == np.transpose(counts).tolist()
    assert cells.mask.tolist() == (np.transpose(counts) == 0).tolist()
    assert axes.get_xlabel() == "client" and axes.get_ylabel() == "label"
    assert axes.get_title(loc="left") == "title"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["cat", "dog", "fox"]
    assert axes.yaxis_inverted() and axes.get_ylim() == (2.5, -0.5)
    assert [text.get_text() for text in figure.axes[1].get_yticklabels()][::10] == ["5"]


def test_more_examples_are_darker():
    _, _, mesh = drawn([[1, 10, 100, 1000]])
    lightness = [sum(mesh.cmap(mesh.norm(count))[:3]) for count in (1, 10, 100, 1000)]
    assert lightness == sorted(lightness, reverse=True)
    steps = np.diff([mesh.norm(count) for count in (1, 10, 100, 1000)])
    assert steps == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("counts", "ticks"),
    [
        ([5, 1301], [5, 10, 30, 100, 300, 1301]),
        ([5, 32], [5, 10, 20, 32]),
        ([1, 12], [1, 2, 5, 12]),
        ([0, 300, 300], [200, 300, 500]),
        ([7], [5, 7, 10]),
        ([1], [0.5, 1, 2]),
    ],
)
def test_the_scale_has_its_ends_and_round_numbers(counts, ticks):
    scale = Scale.of(np.array(counts))
    assert list(scale.ticks) == ticks
    low, high = scale.ends
    assert low <= min(count for count in counts if count) and high >= max(counts)
    assert high / low >= 4 * (1 - 1e-12)


def test_names_that_would_not_fit_are_cut_or_left_out():
    _, axes, _ = drawn(np.ones((3, 2), int), ["$a_b$", "x" * 99])
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert shown == ["$a_b$", "x" * (NAME_LENGTH - 1) + "…"]
    assert not any(text.get_parse_math() for text in axes.get_yticklabels())
    many = NAMED + 1
    _, axes, _ = drawn(np.ones((3, many), int), [f"class {n}" for n in range(many)])
    assert len(axes.get_yticks()) < 10


@pytest.mark.parametrize("shape", [(1, 2), (200, 10), (10, 200), (200, 200)])
def test_a_picture_stays_within_a_page_and_its_words_apart(shape):
    counts = np.random.default_rng(0).integers(0, 90, shape)
    figure, axes, _ = drawn(counts)
    width, height = figure.get_size_inches()
    assert 4 <= width <= 12.5 and 2 <= height <= 9
    figure.draw_without_rendering()
    for texts in (axes.get_xticklabels(), axes.get_yticklabels()):
        boxes = [text.get_window_extent() for text in texts if text.get_text()]
        for one, other in pairwise(boxes):
            assert not one.overlaps(other)
