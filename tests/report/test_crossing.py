"""Methods under the same conditions: which groups are a crossing, and what is drawn of it."""

import re
from html import unescape
from itertools import combinations, product

import numpy as np
import pytest

from fedivon_app.report import condition_plot, figure_files, plots
from fedivon_app.report.grouping import crossed, grouped
from fedivon_app.report.pages import write_comparison, write_report
from fedivon_app.report.results import RunResults
from tests.report.pages import Page, new_run, record, scores

METHODS = ("fedavg", "fedivon", "pfedhb")
GRID = [(f"clients_per_round={c}", f"data.options.a={a}") for c, a in product((5, 10), (0, 0.5))]
NAMES = ["clients_per_round=5, a=0", "clients_per_round=5, a=0.5", "clients_per_round=10, a=0"]
NAMES += ["clients_per_round=10, a=0.5"]


@pytest.fixture
def drawn(monkeypatch):
    """What the chapter gives to be drawn: by title, the conditions and the lines."""
    found = {}

    def draw(title, y, conditions, lines):
        found[title] = conditions, lines
        return plots.Figure()

    monkeypatch.setattr(condition_plot, "by_condition", draw)
    monkeypatch.setattr(figure_files, "png", lambda figure, path, legend=(): None)
    return found


def crossing(runs):
    return crossed(grouped([RunResults.read(run) for run in runs]).groups)


def models(pm=None, central=None, clients=None):
    """A round's record with accuracies: of the PMs, and of the GM centrally and on the clients."""

    def over(
        accuracy,
    ):  # `mean` is the one over clients, which is to be drawn, not that over all examples
        return {
            "mean": scores(0.01),
            "by_client": [],
            "over_clients": {"mean": {"mean": accuracy, "weighted": 0.02}},
        }

    gm = {"test": {"mean": scores(central), "mc": scores(0.03)}} if central else {}
    gm |= {"clients_before_training": over(clients)} if clients else {}
    return record(2, gm=gm, **({"pm": {"clients_after_training": over(pm)}} if pm else {}))


def grid(folder, methods, conditions, seeds=(0,), scored=lambda *_: []):
    return [
        new_run(folder, scored(method, sets, seed), seed=seed, strategy=method, sets=sets)
        for seed, method, sets in product(seeds, methods, conditions)
    ]


def test_methods_and_conditions_come_in_their_order_and_seeds_fall_together(tmp_path):
    found = crossing(grid(tmp_path, METHODS, GRID, seeds=(0, 1)))
    assert found.conditions == NAMES
    assert list(found.methods) == list(METHODS)
    for method, groups in found.methods.items():
        assert [group.settings.strategy for group in groups] == [method] * 4
        cells = [
            (g.settings.clients_per_round, g.settings.data.options["a"], len(g.results))
            for g in groups
        ]
        assert cells == [(5, 0, 2), (5, 0.5, 2), (10, 0, 2), (10, 0.5, 2)]


def test_a_method_that_lacks_a_condition_has_none_there(tmp_path):
    runs = grid(tmp_path, METHODS, GRID)
    del runs[6]  # of fedivon, the third
    found = crossing(runs)
    assert found.conditions == NAMES
    assert [[group is not None for group in groups] for groups in found.methods.values()] == [
        [True] * 4,
        [True, True, False, True],
        [True] * 4,
    ]


def test_what_methods_do_by_themselves_under_a_condition_does_not_matter(tmp_path):
    sets = [("data.options.a=0",), ("data.options.a=1", "client.epochs=7")]
    found = crossing(grid(tmp_path, ("fedavg", "fedivon"), sets))
    assert found.conditions == ["a=0", "a=1"]


@pytest.mark.parametrize(
    "kinds",
    [
        [("fedivon", sets) for sets in GRID],  # one method
        [(method, ()) for method in METHODS],  # one condition
        [
            ("fedavg", GRID[0]),
            ("fedivon", GRID[0]),
            ("fedivon", GRID[1]),
        ],  # fedavg under no second one
        [
            ("fedavg", GRID[0]),
            ("fedavg", GRID[1]),
            ("fedivon", GRID[2]),
            ("fedivon", GRID[3]),
        ],  # none shared
        [
            (method, (f"client.epochs={n}",)) for method in ("fedavg", "fedivon") for n in (1, 2)
        ],  # the methods' own
        [  # two groups of one method under one condition
            *((method, sets) for method in METHODS for sets in GRID),
            ("fedavg", (*GRID[0], "client.epochs=9")),
        ],
    ],
)
def test_other_groups_are_no_crossing(kinds, tmp_path):
    assert (
        crossing([new_run(tmp_path, strategy=method, sets=sets) for method, sets in kinds]) is None
    )


def test_what_is_drawn_are_the_means_over_seeds_and_their_deviation(tmp_path, drawn):

    def earlier(one):
        return models(*(value and value / 2 for value in one)) | {"round": 1}

    given = {  # of each seed: PM, GM on the central test set, GM on the clients' test parts
        ("fedavg", 0): [(0.5, 0.4, 0.1), (0.7, 0.6, 0.1)],
        ("fedavg", 1): [(0.6, 0.3, 0.1)],
        ("fedavg", 2): [(0.65, None, 0.25)],
        ("fedivon", 0): [(0.8, 0.75, 0.1)],
        ("fedivon", 2): [(None, None, None)],
    }
    runs = [
        new_run(
            tmp_path,
            [earlier(one), models(*one)],
            seed=seed,
            strategy=method,
            sets=[f"data.options.a={a}"],
        )
        for (method, a), seeds in given.items()
        for seed, one in enumerate(seeds)
    ]
    runs.append(
        new_run(
            tmp_path, [models(0.99, 0.99)], "failed", strategy="fedivon", sets=["data.options.a=1"]
        )
    )
    text = write_comparison(runs, tmp_path / "compare").read_text()
    nan = np.nan
    spread = np.std([50, 70], ddof=1)
    for title, expected in {
        "PM accuracy by setting": {
            "fedavg": ([60, 60, 65], [spread, nan, nan]),
            "fedivon": ([80, nan, nan], None),
        },
        "GM accuracy by setting": {
            "fedavg": ([50, 30, 25], [spread, nan, nan]),
            "fedivon": ([75, nan, nan], None),
        },
    }.items():
        conditions, lines = drawn[title]
        assert conditions == ["a=0", "a=1", "a=2"]
        assert [(line.label, line.style) for line in lines] == [("fedavg", 0), ("fedivon", 1)]
        for line in lines:
            y, deviation = expected[line.label]
            np.testing.assert_allclose((line.x, line.y), ((0, 1, 2), y))
            assert (line.deviation is None) == (deviation is None)
            if deviation:
                np.testing.assert_allclose(line.deviation, deviation)
    assert (
        "of groups that were not scored on it" in text
        and "Bars: one standard deviation over seeds." in text
    )


def chapter(path):
    text = path.read_text()
    Page(text)
    found = re.search(r'<section id="crossing">.*?</section>', text, re.DOTALL)
    return found and unescape(found[0])


def test_the_page_has_the_chapter_where_methods_are_crossed(tmp_path):
    def scored(method, sets, seed):
        return [
            models(0.5 + 0.1 * METHODS.index(method) + 0.02 * seed, 0.4 + 0.1 * GRID.index(sets))
        ]

    runs = grid(tmp_path / "runs", METHODS, GRID[:2], (0, 1), scored)
    found = chapter(write_comparison(runs, tmp_path / "compare"))
    assert re.findall(r"<title>(.*?)</title>", found) == [
        "PM accuracy by setting",
        "GM accuracy by setting",
    ]
    keys = re.findall(r'<button type="button" data-series="(\d)">.*?</svg>([\w-]+)</button>', found)
    assert keys == [("0", "fedavg"), ("1", "fedivon"), ("2", "pfedhb")]
    assert "own test parts" in found and "not scored on it" not in found and "Bars: " in found
    for name in ("pm-by-setting", "gm-by-setting"):
        assert (tmp_path / "compare" / "plots" / f"{name}.png").stat().st_size > 5000
    one_seed = chapter(write_comparison(runs[:6], tmp_path / "one"))
    assert "Bars: " not in one_seed


def test_without_personal_models_only_the_global_one_is_drawn(tmp_path, drawn):
    runs = grid(tmp_path, METHODS[:2], GRID[:2], scored=lambda *_: [models(central=0.5)])
    found = chapter(write_comparison(runs, tmp_path / "compare"))
    assert list(drawn) == ["GM accuracy by setting"] and "PM" not in found


def test_the_page_has_no_such_chapter_otherwise(tmp_path, drawn):
    runs = grid(tmp_path, METHODS[:2], GRID[:2], scored=lambda *_: [models(0.5, 0.5)])
    assert chapter(write_comparison(runs, tmp_path / "all"))
    for name, some in {"method": runs[:2], "condition": runs[::2], "corner": runs[:3]}.items():
        assert chapter(write_comparison(some, tmp_path / name)) is None
    assert chapter(write_report(runs[0])) is None
    unscored = grid(tmp_path / "unscored", METHODS[:2], GRID[:2], scored=lambda *_: [record(1)])
    assert chapter(write_comparison(unscored, tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("conditions", "heading", "rows"),
    [
        (["a=0, b=0", "a=0.5, b=0.5", "a=1, b=1"], "a, b", ["0, 0", "0.5, 0.5", "1, 1"]),
        (["a=0, b=0", "a=0.5", "a=1, b=1"], "", ["a=0,", "b=0", "a=0.5", "a=1,", "b=1"]),
        (
            [f"clients={c}, a={a:g}" for c in (5, 10) for a in (0, 1)],
            "clients, a",
            ["5, 0", "5, 1", "10, 0", "10, 1"],
        ),
        ([f"x{c}, a={a:g}, b={a:g}" for c in range(5, 13) for a in (0, 0.5, 1)], "", None),
        (["cifar10-personal-50", "cifar100-personal-200, $x$, sizes=[100, 100]"], "", None),
    ],
)
def test_names_of_conditions_neither_overlap_nor_leave_the_figure(conditions, heading, rows):
    places = np.arange(len(conditions))
    figure = condition_plot.by_condition(
        "Title", "accuracy %", conditions, [plots.Line("", 0, places, 60.0 + places)]
    )
    figure.draw_without_rendering()
    (axes,) = figure.axes
    texts = figure.axes[0].texts
    boxes = [text.get_window_extent() for text in texts]
    if rows is None:
        assert " ".join(text.get_text() for text in texts) == " ".join(conditions)
    else:
        assert [text.get_text() for text in texts] == rows
    assert axes.get_xlabel() == heading
    boxes += [axes.xaxis.label.get_window_extent()] if heading else []
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    for box in boxes:
        assert box.y0 > 0 and box.x0 > 0 and box.x1 < figure.bbox.x1 and box.y1 < axes.bbox.y0


def test_lines_have_gaps_and_bars_where_the_numbers_say_so():
    one = plots.Line(
        "a", 0, np.arange(3), np.array([50.0, np.nan, 70.0]), np.array([2.0, np.nan, np.nan])
    )
    two = plots.Line("b", 1, np.arange(3), np.array([40.0, 41.0, 42.0]))
    figure = condition_plot.by_condition("Title", "accuracy %", ["x", "y", "z"], [one, two])
    (axes,) = figure.axes
    (bars,) = axes.containers
    segments = [segment for segment in bars[2][0].get_segments() if len(segment)]
    np.testing.assert_allclose([segment[:, 1] for segment in segments], [(48, 52)])
    picture = figure_files.svg(figure, "name", "Title")
    assert set(re.findall(r'data-series="(\d)"', picture)) == {"0", "1"}
    assert "nan" not in picture.lower()
    drawn = [(line.get_gid(), line.get_ydata()) for line in axes.lines if line.get_marker() == "o"]
    assert [gid for gid, _ in drawn] == ["series0", "series1"]
    np.testing.assert_array_equal([y for _, y in drawn], [one.y, two.y])
