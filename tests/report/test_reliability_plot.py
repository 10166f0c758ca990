"""Reliability diagrams: their bins, and what is drawn of them."""

import numpy as np
import pytest

from fedivon_app.core.metrics import Tally
from fedivon_app.core.metrics import reliability as bins_of
from fedivon_app.report.reliability_plot import Bins, diagrams


def predictions(seed, size=400, classes=4):
    """Probabilities and labels at random."""
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet(np.full(classes, 0.4), size)
    return probabilities, generator.integers(0, classes, size)


def written(tally):
    """The bins of a tally as a run's file has them."""
    return {
        name: [None if np.isnan(value) else float(value) for value in values]
        for name, values in bins_of(tally).items()
    }


def test_pooled_bins_are_those_of_all_predictions():
    tallies = [Tally.of(*predictions(seed)) for seed in (0, 1, 2)]
    pooled = Bins.pooled([Bins.of(written(tally)) for tally in tallies])
    wanted = bins_of(sum(tallies, Tally()))
    np.testing.assert_allclose(pooled.confidence, wanted["confidence"])
    np.testing.assert_allclose(pooled.accuracy, wanted["accuracy"])
    np.testing.assert_array_equal(pooled.count, wanted["count"])
    assert pooled.ece == pytest.approx(sum(tallies, Tally()).ece)


def test_without_counts_runs_count_alike_and_there_is_no_error():
    one = Bins.of({"confidence": [0.2, None, 0.9], "accuracy": [0.1, None, 0.8]})
    two = Bins.of({"confidence": [0.3, 0.6, None], "accuracy": [0.3, 0.5, None]})
    pooled = Bins.pooled([one, two])
    np.testing.assert_allclose(pooled.confidence, [0.25, 0.6, 0.9])
    np.testing.assert_allclose(pooled.accuracy, [0.2, 0.5, 0.8])
    assert pooled.count is None and pooled.ece is None


def heights(bars):
    return [bar.get_height() for bar in bars]


def test_bars_are_accuracies_and_gaps_reach_to_the_confidence():
    bins = Bins(
        confidence=np.array([np.nan, 0.5, 0.9]),
        accuracy=np.array([np.nan, 0.7, 0.6]),
        count=np.array([0.0, 30.0, 10.0]),
    )
    figure = diagrams("block", {"FedAvg, ECE 0.225": bins})
    main, strip = figure.axes
    bars, gaps = main.containers
    assert heights(bars) == pytest.approx([0, 0.7, 0.6])
    assert heights(gaps) == pytest.approx([0, -0.2, 0.3])
    assert [bar.get_y() + bar.get_height() for bar in gaps] == pytest.approx([0, 0.5, 0.9])
    assert [bar.get_x() for bar in bars] == pytest.approx([0, 1 / 3, 2 / 3])
    assert heights(strip.containers[0]) == pytest.approx([0, 75, 25])
    assert main.get_title(loc="left") == "FedAvg, ECE 0.225"
    assert bins.ece == pytest.approx((30 * 0.2 + 10 * 0.3) / 40)
    diagonal = main.lines[0].get_xydata()
    assert diagonal.tolist() == [[0, 0], [1, 1]]


def test_without_counts_there_is_no_strip():
    bins = Bins(confidence=np.array([0.2, 0.8]), accuracy=np.array([0.1, 0.9]))
    figure = diagrams("block", {"a": bins, "b": bins})
    assert len(figure.axes) == 2 and all(axes.get_xlabel() for axes in figure.axes)


def test_many_diagrams_stand_in_rows():
    bins = Bins(np.array([0.2, 0.8]), np.array([0.1, 0.9]), np.array([5.0, 5.0]))
    figure = diagrams("block", {f"row {number}": bins for number in range(6)})
    shown = [axes for axes in figure.axes if axes.get_visible()]
    titles = [axes.get_title(loc="left") for axes in shown]
    assert [title for title in titles if title] == [f"row {number}" for number in range(6)]
    assert len(shown) == 12 and len(figure.axes) == 16
