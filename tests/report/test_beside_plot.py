"""Our numbers beside the papers': what is drawn where."""

from fedivon_app.report.beside_plot import APART, Pair, beside_figure

PANELS = {
    "Accuracy %": [Pair("A", 80.0, 1.0, 79.0, 0.5), Pair("B", theirs=70.0), Pair("C", 75.0)],
    "NLL": [Pair("A", 0.5), Pair("B"), Pair("C", 0.7, theirs=0.8)],
}


def test_ours_are_dots_above_the_papers_rings():
    figure = beside_figure("Table 1, digits", PANELS)
    accuracy, nll = figure.axes
    assert accuracy.get_title(loc="left") == "Accuracy %" and nll.get_title(loc="left") == "NLL"
    dots = [(line.get_xdata()[0], line.get_ydata()[0]) for line in accuracy.lines]
    assert dots == [(80.0, -APART), (79.0, APART), (70.0, 1 + APART), (75.0, 2 - APART)]
    faces = [line.get_markerfacecolor() == "none" for line in accuracy.lines]
    assert faces == [False, True, True, False]
    assert [text.get_text() for text in accuracy.get_yticklabels()] == ["A", "B", "C"]
    assert len(nll.lines) == 3 and accuracy.get_ylim()[0] > accuracy.get_ylim()[1]
