"""What is drawn of a table's outcomes: hand-made ones, whose lines can be told beforehand."""

import numpy as np
import pytest

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.methods import settings_of
from fedivon_app.report.label_plot import label_counts
from fedivon_app.report.plots import Cloud
from fedivon_app.report.style import look
from fedivon_app.tables import drawings
from fedivon_app.tables.drawings import FIGURES, Sheet, draw, running_mean
from fedivon_app.tables.outcome import Outcome
from fedivon_app.tables.table_file import Table

SCALES = {"paper": {}, "here": {}, "quick": {}}
ACCURACY = {"name": "Accuracy %", "cell": {"score": "accuracy"}}
NLL = {"name": "NLL", "cell": {"score": "nll"}}


def outcome(seed=0, **values):
    """A run in brief, of which only what is given is of interest."""
    costs = {"seconds": 1, "training_seconds": 1, "megabytes": 1, "clients": 1}
    return Outcome.model_validate(
        {"seed": seed, "date": "2026-11-01", "rounds": 4, **costs, **values}
    )


def table(draws, columns=(ACCURACY,), blocks=("one", "two"), rows=("FedAvg", "FedIvon"), **values):
    cells = [{"name": row, "cell": {"strategy": row.lower()}} for row in rows]
    made = [{"name": b, "cell": {"experiment": "demo"}, "rows": cells} for b in blocks]
    whole = {"paper": "fedivon", "title": "a figure", "place": "Figure 2", "scales": SCALES}
    whole |= {"name": "fedivon-figure2", "draws": draws, "columns": columns, "blocks": made}
    return Table.model_validate(whole | values)


def figures(one, outcomes, scale="here"):
    """The figures that would be drawn of a table."""
    return list(FIGURES[one.draws](Sheet(one, outcomes, scale)))


def lines_of(axes):
    """The lines in axes, by their colours, as lists of points."""
    return {line.get_color(): line.get_xydata().tolist() for line in axes.lines}


def scored(curve, name="gm.test.mean.accuracy", **more):
    return outcome(scores={name: curve, **more})


# Curves.


def test_a_line_is_the_mean_over_seeds_with_a_band_of_one_deviation():
    one = [scored({1: 0.2, 2: 0.5, 4: 0.7}), scored({1: 0.4, 2: 0.5, 3: 0.9})]
    outcomes = {("one", "FedAvg"): one, ("one", "FedIvon"): [scored({2: 0.25, 4: 0.75})]}
    (figure,) = figures(table("curves"), outcomes)
    (axes,) = figure.axes  # nothing was measured for the other block
    first, second = look(0).hex, look(1).hex
    assert lines_of(axes) == {first: [[1, 30], [2, 50]], second: [[2, 25], [4, 75]]}
    (band,) = axes.collections
    points = band.get_paths()[0].vertices
    deviation = 100 * np.std([0.2, 0.4], ddof=1)
    at_first = points[points[:, 0] == 1, 1]
    assert (min(at_first), max(at_first)) == pytest.approx((30 - deviation, 30 + deviation))
    assert axes.get_ylabel() == "Accuracy %" and axes.get_xlabel() == "round"
    assert axes.get_title(loc="left") == "one"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["FedAvg", "FedIvon"]


def test_a_row_looks_the_same_in_all_panels():
    outcomes = {("one", "FedAvg"): [scored({1: 0.5})], ("one", "FedIvon"): [scored({1: 0.6})]}
    outcomes[("two", "FedIvon")] = [scored({1: 0.7})]
    (figure,) = figures(table("curves"), outcomes)
    left, right = figure.axes
    assert set(lines_of(left)) == {look(0).hex, look(1).hex}
    assert lines_of(right) == {look(1).hex: [[1, 70]]}


def test_the_cell_says_whose_model_and_which_way_is_drawn():
    scores = {
        "gm.test.mean.accuracy": {1: 0.1},
        "gm.test.mc.accuracy": {1: 0.2},
        "pm.clients.mean.accuracy": {1: 0.3},
        "pm.clients.mc.accuracy": {1: 0.4},
        "gm.pooled.mean.accuracy": {1: 0.5},
    }
    for cell, wanted in (
        ({}, 10),
        ({"way": "mc"}, 20),
        ({"model": "pm"}, 30),
        ({"model": "pm", "way": "mc"}, 40),
        ({"over": "pooled"}, 50),
    ):
        one = table("curves", blocks=["one"], cell=cell)
        (figure,) = figures(one, {("one", "FedAvg"): [outcome(scores=scores)]})
        ((point,),) = lines_of(figure.axes[0]).values()
        assert point == pytest.approx([1, wanted])
        personal = cell.get("model") == "pm"
        assert ("personal models" in figure.axes[0].get_ylabel()) == personal


def test_a_method_without_samples_is_drawn_at_its_mean():
    one = table("curves", blocks=["one"], cell={"way": "mc"})
    (figure,) = figures(one, {("one", "FedAvg"): [scored({1: 0.5})]})
    assert lines_of(figure.axes[0]) == {look(0).hex: [[1, 50]]}


def test_another_score_or_model_has_a_figure_of_its_own_and_other_rounds_have_not():
    early = {"name": "early", "cell": {"score": "accuracy", "rounds": [1]}}
    personal = {"name": "PM", "cell": {"score": "accuracy", "model": "pm"}}
    size = {"name": "MB", "cell": {"score": "megabytes"}}
    other = {"name": "other", "cell": {"score": "brier", "set": ["rounds=3"]}}
    one = table("curves", [ACCURACY, early, NLL, personal, size, other], blocks=["one"])
    run = scored({1: 0.5}, **{"gm.test.mean.nll": {1: 1.5}, "pm.clients.mean.accuracy": {1: 0.6}})
    found = figures(one, {("one", "FedAvg"): [run]})
    assert [lines_of(figure.axes[0])[look(0).hex] for figure in found] == [
        [[1, 50]],
        [[1, 1.5]],
        [[1, 60]],
    ]
    assert found[1].axes[0].get_ylabel() == "NLL"


def test_the_unit_is_that_of_the_paper():
    thousand = {"name": "NLL", "cell": {"score": "nll"}, "factor": 1000}
    run = scored({1: 0.25}, "gm.test.mean.nll")
    (figure,) = figures(table("curves", [thousand]), {("one", "FedAvg"): [run]})
    assert lines_of(figure.axes[0]) == {look(0).hex: [[1, 250]]}


def test_failed_runs_are_left_out():
    failed = outcome(scores={"gm.test.mean.accuracy": {1: 0.1}}, failed="it diverged")
    outcomes = {("one", "FedAvg"): [failed, scored({1: 0.5, 2: 0.6})], ("two", "FedAvg"): [failed]}
    (figure,) = figures(table("curves"), outcomes)
    (axes,) = figure.axes
    assert lines_of(axes) == {look(0).hex: [[1, 50], [2, 60]]}


# Reliability.


def bins(accuracy, confidence, count=None):
    values = {"accuracy": accuracy, "confidence": confidence}
    return values | ({"count": count} if count else {})


def test_a_diagram_a_row_over_all_its_runs():
    first = bins([None, 0.5], [None, 0.75], [0, 10])
    second = bins([0.25, 0.8], [0.25, 0.75], [10, 10])
    outcomes = {
        ("one", "FedAvg"): [
            outcome(reliability={"mean": first, "mc": second}),
            outcome(1, reliability={"mean": second}),
        ],
        ("two", "FedIvon"): [outcome(reliability={"mean": first})],
    }
    one, two = figures(table("reliability"), outcomes)
    main = one.axes[0]
    bars, _ = main.containers
    assert [bar.get_height() for bar in bars] == pytest.approx([0.25, 0.65])
    ece = (0.25 + 0.05 / 2) / 2  # the mean of both runs'
    assert main.get_title(loc="left") == f"FedAvg, ECE {ece:.3f}"
    assert two.axes[0].get_title(loc="left") == "FedIvon, ECE 0.250"
    assert one.get_suptitle() == "one" and two.get_suptitle() == "two"


def test_without_counts_the_error_is_that_of_the_last_round():
    run = outcome(
        scores={"gm.test.mc.ece": {1: 0.5, 4: 0.125}, "gm.test.mc.accuracy": {4: 0.5}},
        reliability={"mc": bins([0.5, 0.5], [0.2, 0.8])},
    )
    one = table("reliability", cell={"way": "mc"}, blocks=["one"])
    (figure,) = figures(one, {("one", "FedIvon"): [run]})
    assert figure.axes[0].get_title(loc="left") == "FedIvon, ECE 0.125"
    assert len(figure.axes) == 1


# Retention.


def kept(**curves):
    return {"fractions": [0.5, 1.0], **{name.replace("_", "."): c for name, c in curves.items()}}


def test_a_panel_a_block_and_measure_with_a_line_a_row():
    point = outcome(retention=kept(mean_entropy=[0.9, 0.7], mean_aleatoric=[0.8, 0.7]))
    values = kept(mean_entropy=[0, 0], mc_entropy=[1.0, 0.75], mc_epistemic=[0.95, 0.75])
    sure = outcome(retention=values, scores={"gm.test.mc.accuracy": {4: 0.75}})
    outcomes = {("one", "FedAvg"): [point], ("one", "FedIvon"): [sure], ("two", "FedAvg"): [point]}
    (figure,) = figures(table("retention", cell={"way": "mc"}), outcomes)
    shown = [axes.get_visible() for axes in figure.axes]
    assert shown == [True, True, True, True, True, False]
    entropy, aleatoric, epistemic = figure.axes[:3]
    first, second = look(0).hex, look(1).hex
    assert lines_of(entropy) == {first: [[50, 90], [100, 70]], second: [[50, 100], [100, 75]]}
    assert list(lines_of(aleatoric)) == [first] and list(lines_of(epistemic)) == [second]
    assert epistemic.get_xlabel() == "% kept, by least epistemic part"


def test_columns_say_which_measures_are_drawn():
    column = {"name": "half", "cell": {"score": "half-by-epistemic", "way": "mc"}}
    values = kept(mc_entropy=[1.0, 0.5], mc_epistemic=[0.75, 0.5])
    run = outcome(retention=values, scores={"gm.test.mc.accuracy": {4: 0.5}})
    (figure,) = figures(table("retention", [column]), {("one", "FedIvon"): [run]})
    (axes,) = figure.axes
    assert lines_of(axes) == {look(1).hex: [[50, 75], [100, 50]]}


# Sizes.


def test_a_dot_a_client_of_every_run_and_their_running_mean():
    clients = {"num_train": [100, 10, 1000], "pm.mean": [0.5, 0.25, 0.75], "gm.mean": [0, 0, 0]}
    outcomes = {("one", "FedAvg"): [outcome(by_client=clients), outcome(1, by_client=clients)]}
    (figure,) = figures(table("sizes"), outcomes)
    (axes,) = figure.axes
    (dots,) = axes.collections
    wanted = [[10, 25], [10, 25], [100, 50], [100, 50], [1000, 75], [1000, 75]]
    assert dots.get_offsets().tolist() == wanted
    assert axes.get_xscale() == "log"


def test_the_model_and_the_way_are_the_cells():
    clients = {
        "num_train": [10, 20],
        "pm.mean": [0.1] * 2,
        "pm.mc": [0.2] * 2,
        "gm.mean": [0.3] * 2,
    }
    scores = {"pm.clients.mc.accuracy": {4: 0.2}, "gm.test.mean.accuracy": {4: 0.3}}
    run = outcome(by_client=clients, scores=scores)
    for cell, wanted in (({}, 10), ({"way": "mc"}, 20), ({"model": "gm", "way": "mc"}, 30)):
        (figure,) = figures(table("sizes", cell=cell), {("one", "FedAvg"): [run]})
        assert figure.axes[0].collections[0].get_offsets()[0, 1] == pytest.approx(wanted)


def test_a_running_mean_goes_over_neighbours():
    x = np.array([1.0, 10, 100, 1000, 10000, 100000])
    line = running_mean(Cloud("a", 3, x, np.array([0.0, 10, 20, 30, 40, 50])))
    assert line.x.tolist() == pytest.approx([100, 1000])
    assert line.y.tolist() == pytest.approx([20, 30])
    assert line.style == 3
    alone = running_mean(Cloud("a", 0, np.array([7.0]), np.array([50.0])))
    assert alone.x.tolist() == pytest.approx([7]) and alone.y.tolist() == [50]


# Labels and illustrations.


def labels_table(**values):
    scales = {"paper": {}, "here": {"set": ["data.clients=15"]}, "quick": {}}
    options = {"columns": (), "blocks": ["digits"], "rows": ["fedivon"], "scales": scales}
    return table("labels", **(options | values))


@pytest.mark.parametrize(("scale", "clients"), [("paper", 20), ("here", 15)])
def test_labels_are_those_of_the_experiment_at_the_scale(scale, clients):
    (figure,) = figures(labels_table(), {}, scale)
    settings = compose(settings_of, "demo", "fedivon", [f"data.clients={clients}"])
    cells = figure.axes[0].collections[0].get_array().filled(0)
    assert cells.tolist() == label_counts(settings).T.tolist()
    assert figure.axes[0].get_title(loc="left") == "digits"


def test_labels_that_cannot_be_drawn_here_are_left_out():
    scales = {**SCALES, "here": {"cannot": "The data are not there."}}
    assert figures(labels_table(scales=scales), {}) == []
    bare = Table.model_validate(
        {**labels_table().model_dump(), "blocks": [{"name": "b", "rows": [{"name": "r"}]}]}
    )
    with pytest.raises(SettingsError, match="fedivon-figure2.yaml: b, r: .* none is named"):
        figures(bare, {})


def test_an_illustration_is_drawn_by_its_name(tmp_path, monkeypatch):
    (some,) = figures(labels_table(), {})
    monkeypatch.setattr(drawings, "ILLUSTRATIONS", {"bayes-admm-4": lambda: some})
    named = table(None, (), (), illustration="bayes-admm-4", name="bayes-admm-figure4")
    assert draw(named, {}, tmp_path, "here") == [tmp_path / "bayes-admm-figure4-here-01.png"]
    wrong = table(None, (), (), illustration="bayes-admm-5")
    with pytest.raises(SettingsError, match="no illustration 'bayes-admm-5': did you mean"):
        draw(wrong, {}, tmp_path, "here")


# Files.


def test_pictures_are_numbered_pngs(tmp_path):
    one = table("curves", [ACCURACY, NLL], blocks=["one"])
    run = scored({1: 0.5}, **{"gm.test.mean.nll": {1: 1.5}})
    paths = draw(one, {("one", "FedAvg"): [run]}, tmp_path / "new", "here")
    assert [path.name for path in paths] == [
        "fedivon-figure2-here-01.png",
        "fedivon-figure2-here-02.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


@pytest.mark.parametrize("kind", ["curves", "reliability", "retention", "sizes"])
def test_what_was_not_measured_is_not_drawn(kind, tmp_path):
    assert draw(table(kind), {}, tmp_path, "here") == []
    assert draw(table(kind), {("one", "FedAvg"): [outcome()]}, tmp_path, "here") == []


def test_a_table_that_draws_nothing_has_no_pictures(tmp_path):
    assert draw(table(None), {("one", "FedAvg"): [scored({1: 0.5})]}, tmp_path, "here") == []
    assert not list(tmp_path.iterdir())
