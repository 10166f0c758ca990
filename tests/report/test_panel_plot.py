"""Figures of several panels: their places, their one legend, and logarithmic axes."""

from itertools import pairwise

import numpy as np
import pytest

from fedivon_app.report.panel_plot import (
    Panel,
    columns_of,
    names_per_line,
    panels_figure,
    round_numbers,
)
from fedivon_app.report.plots import Cloud, Line


def line(label="FedAvg", style=0, size=3):
    return Line(label, style, np.arange(1, size + 1), np.linspace(10, 90, size))


def panel(title="block", **options):
    return Panel(title, "round", "Accuracy %", **{"lines": [line()], **options})


@pytest.mark.parametrize(
    ("count", "columns"), [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3), (6, 3), (7, 3)]
)
def test_panels_stand_in_rows(count, columns):
    figure = panels_figure([panel(f"block {number}") for number in range(count)])
    assert columns_of(count) == columns
    assert figure.axes[0].get_gridspec().ncols == columns
    shown = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    assert shown == [f"block {number}" for number in range(count)]


def test_an_empty_panel_keeps_its_place():
    figure = panels_figure([panel("a"), panel("b", lines=[]), panel("c")], across=2)
    assert [axes.get_visible() for axes in figure.axes] == [True, False, True, False]


def test_there_is_one_legend_with_each_series_once():
    panels = [panel(lines=[line("a", 0), line("b", 1)]), panel(lines=[line("b", 1), line("c", 2)])]
    (legend,) = panels_figure(panels).legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]


@pytest.mark.parametrize("count", [1, 2])
def test_words_do_not_overlap(count):
    names = [f"a method of some length {number}" for number in range(12)]
    lines = [line(name, style) for style, name in enumerate(names)]
    figure = panels_figure([panel("long-words " * 9, lines=lines) for _ in range(count)])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    page = figure.bbox
    assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
    titles = [axes._left_title.get_window_extent() for axes in figure.axes]
    assert all(title.x1 <= page.x1 for title in titles)
    assert not any(one.overlaps(other) for one, other in pairwise(titles))
    for axes in figure.axes:
        assert not box.overlaps(axes.get_tightbbox())


def test_names_of_a_legend_fill_lines_evenly():
    assert names_per_line([1.0] * 5, width=7.0) == 5
    assert names_per_line([1.0] * 5, width=4.5) == 3
    assert names_per_line([2.0, 0.5, 0.5], width=3.0) == 3
    assert names_per_line([9.0, 9.0], width=3.0) == 1


def test_dots_and_lines_over_a_logarithmic_axis():
    cloud = Cloud("FedAvg", 0, np.array([10.0, 100.0, 3000.0]), np.array([50.0, 60.0, 70.0]))
    figure = panels_figure([panel(clouds=[cloud], log_x=True)])
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert axes.collections[0].get_offsets().tolist() == [[10, 50], [100, 60], [3000, 70]]
    assert axes.lines[0].get_marker() == ""
    figure.draw_without_rendering()
    shown = [text.get_text() for text in axes.get_xticklabels()]
    assert {"10", "100", "1,000"} <= {*shown}


def test_round_numbers():
    assert round_numbers(4, 1500) == [10, 30, 100, 300, 1000]
    assert round_numbers(5, 32) == [5, 10, 20]
    assert round_numbers(1, 10) == [1, 2, 5, 10]
