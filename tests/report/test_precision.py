"""The chapter on what the precision says: its rows, its lines, and when it is not there."""

import re
from html import unescape

import pytest

from fedivon_app.report.chapters import precision
from fedivon_app.report.pages import write_comparison, write_report
from fedivon_app.report.results import RunResults
from fedivon_app.report.spread_plot import Spread, spreads
from tests.report.pages import new_run, read, record

pytestmark = pytest.mark.usefixtures("quick")


def quantiles(low: float, high: float) -> dict[str, float]:
    return {"min": low / 2, "p1": low, "p50": 2 * low, "p99": high, "max": 2 * high}


def learned(shift: float | None = 0.25, **tensors: dict[str, float]):
    """Two scored rounds, the second of which has these tensors."""
    more = {} if shift is None else {"merge_shift": shift}
    first = {"all": quantiles(1000, 2000)}
    return [
        record(1, precision=first, **more),
        record(2, precision={"all": quantiles(1000, 8000), **tensors}, **more),
    ]


def test_a_runs_page_has_a_row_a_tensor_and_lines_by_round(tmp_path):
    run = new_run(tmp_path, learned(head=quantiles(1e3, 1e5)))
    path = write_report(run)
    assert '<section id="precision"' in path.read_text()
    assert read(path).titles[-3:] == [
        "Precision by tensor",
        "Spread of the precision by round",
        "Shift of the merge, in sigmas by round",
    ]
    assert precision._ratios(RunResults.read(run)) == {1: 2.0, 2: 8.0}


def test_without_merges_by_precision_there_is_no_shift_and_points_have_no_chapter(tmp_path):
    titles = read(write_report(new_run(tmp_path / "a", learned(shift=None)))).titles
    assert "Spread of the precision by round" in titles and "Shift" not in "".join(titles)
    page = write_report(new_run(tmp_path / "b", [record(1), record(2)])).read_text()
    assert '<section id="precision"' not in page


def test_of_many_tensors_the_widest_are_drawn_in_their_order(tmp_path):
    many = {f"layer{n}": quantiles(1.0, 10.0 + n) for n in range(30)}
    run = new_run(tmp_path, learned(**many))
    rows = precision._tensors(RunResults.read(run))
    assert [row.label for row in rows] == [
        "all weights",
        *(f"layer{n}" for n in range(30 - precision.MOST, 30)),
    ]
    text = unescape(write_report(run).read_text())
    assert f"Of 30 tensors the {precision.MOST} with the widest bars" in text


def test_a_comparison_has_a_row_a_group(tmp_path):
    runs = [
        new_run(tmp_path, learned(), strategy="fedivon"),
        new_run(tmp_path, learned(), strategy="fedlaplace"),
        new_run(tmp_path, [record(1), record(2)], strategy="fedavg"),
    ]
    text = write_comparison(runs, tmp_path / "both").read_text()
    assert re.search(r"<title>Precision by run</title>", text)


def test_a_row_shows_its_median_its_bar_and_its_ends():
    figure = spreads("title", "x", [Spread("one", style=0, quantiles=quantiles(10.0, 100.0))])
    (axes,) = figure.axes
    whisker, median = axes.lines
    assert list(whisker.get_xdata()) == [5, 200] and list(median.get_xdata()) == [20, 20]
    (bar,) = axes.patches
    assert (bar.get_x(), bar.get_x() + bar.get_width()) == (10, 100)
    assert axes.get_xscale() == "log"
