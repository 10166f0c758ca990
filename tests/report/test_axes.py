"""Axes: ticks that do not touch, and no drama where nothing happens."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedivon_app.plurals import counted, numbered
from fedivon_app.report.axes import log_ticks
from fedivon_app.report.plots import Cloud, Line, Values, boxes, curves, dots, scatter


def line(*values):
    return Line(label="a", style=0, x=np.arange(1, len(values) + 1), y=np.array(values, float))


def limits(figure):
    (axes,) = figure.axes
    return axes.get_ylim()


def overlaps(axis):
    boxes = [text.get_window_extent() for text in axis.get_ticklabels() if text.get_text()]
    return [1 for one, other in pairwise(boxes) if one.overlaps(other)]


def test_what_is_nearly_equal_looks_so():
    low, high = limits(curves("t", "round", "", [line(0.09985, 0.10125)]))
    assert low < 0.0960 and high > 0.1050
    low, high = limits(dots("t", "y", {0: 0.09985, 1: 0.10125}, level=0.1, what="equal"))
    assert low < 0.0960 and high > 0.1050
    row = Values(label="a", style=0, values=(0.09985, 0.10125))
    low, high = boxes("t", "mean weight", [row]).axes[0].get_xlim()
    assert low < 0.0960 and high > 0.1050


def test_what_differs_fills_the_axis():
    low, high = limits(curves("t", "round", "", [line(0.1, 0.5)]))
    assert 0 < low < 0.1 and 0.5 < high < 0.6
    low, high = limits(curves("t", "round", "", [line(97.5, 98.9)], least=2.0))
    assert 97 < low < 97.5 and 98.9 < high < 99.5  # points of accuracy count


@pytest.mark.parametrize(
    "values",
    [(1, 30), (1, 3), (4969, 4976), (1e-3, 1e12), (0.8, 1.3), (7, 9), (2.5, 400), (1e4, 9e4)],
)
def test_ticks_of_a_logarithmic_axis_do_not_touch(values):
    figure = curves("t", "round", "", [line(*values)], log=True)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert not overlaps(axes.yaxis) and len(axes.get_yticks()) >= 2
    cloud = Cloud(label="a", style=0, x=np.array(values, float), y=np.arange(2.0))
    figure = scatter("t", "x", "y", [cloud], log=True)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert not overlaps(axes.xaxis) and len(axes.get_xticks()) >= 2


@given(st.floats(1e-9, 1e12), st.floats(1.1, 1e12))
def test_log_ticks_are_within_in_order_and_two_at_least(low, factor):
    high = low * factor
    found = log_ticks(low, high, 0.1)
    assert 2 <= len(found) <= 11 and found == sorted(found)
    assert low <= found[0] and found[-1] <= high


def test_one_is_no_plural():
    assert counted(1, "client") == "1 client" and counted(1200, "client") == "1,200 clients"
    assert counted(0, "class", "classes") == "0 classes" and counted(1, "class", "x") == "1 class"


def test_numbers_are_listed_as_a_person_does():
    assert numbered("seed", [1]) == "seed 1"
    assert numbered("seed", (1, 2)) == "seeds 1 and 2"
    assert numbered("round", iter([1, 3, 9])) == "rounds 1, 3 and 9"


def test_a_million_is_written_as_a_hundred_thousand_is():
    figure = curves("t", "round", "", [line(1e5, 1.1e6)], log=True)
    figure.draw_without_rendering()
    words = [text.get_text() for text in figure.axes[0].yaxis.get_ticklabels()]
    assert "1,000,000" in words
