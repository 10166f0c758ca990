"""Learning curves of several runs in one picture."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedivon_app.core.errors import UserError
from fedivon_app.report import pages
from fedivon_app.report.learning_plot import WIDTHS, Panel, learning
from fedivon_app.report.pages import plot_learning
from fedivon_app.report.plots import Line
from tests.report.pages import new_run, record, scores


def test_the_learning_curve_is_drawn(tmp_path):
    run = new_run(tmp_path / "runs", status=None)
    path = tmp_path / "plots" / "learning.png"
    with pytest.raises(UserError, match="no round of these runs was scored"):
        plot_learning([run], path)
    assert not path.exists()
    for number in (5, 10, 15):
        gm = {"test": {"mean": scores(number / 20), "mc": scores(0.5, 1.25, 0.125, samples=4)}}
        run.append(record(number, gm=gm))
    with pytest.raises(UserError, match="1 name for 2 runs"):
        plot_learning([run, run], path, ["one"])
    assert plot_learning([run, run], path, ["_a$", "other"]) == path
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.shape[0] > 300 and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
    column = plot_learning([run], tmp_path / "column.pdf", width="column").read_bytes()
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", column)
    assert box is not None and float(box[1]) == pytest.approx(72 * WIDTHS["column"].inches, abs=1)


def test_curves_by_bytes_end_at_what_was_sent(tmp_path, monkeypatch):
    runs = []
    for place, size in enumerate((4_000_000, 400_000)):
        runs.append(new_run(tmp_path / str(place), status=None))
        for number in (1, 2):
            gm = {"test": {"mean": scores(number / 20)}}
            line = record(number, gm=gm) | {"bytes_up": size, "bytes_down": 2 * size}
            runs[-1].append(line)
    drawn = []
    monkeypatch.setattr(pages, "learning", lambda panels, *rest: drawn.extend(panels) or Figure())
    plot_learning(runs, tmp_path / "bytes.png", by="bytes")
    long, short = drawn[0].lines
    np.testing.assert_allclose(long.x, [12, 24])
    np.testing.assert_allclose(short.x, [1.2, 2.4])
    assert {panel.unit.name for panel in drawn} == {"MB"}
    figure = learning(drawn, "a title")
    assert {axes.get_xlabel() for axes in figure.axes} == {"MB sent, both directions"}
    assert {axes.get_xscale() for axes in figure.axes} == {"log"}


@pytest.mark.parametrize("width", [*WIDTHS, None])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_no_words_of_a_picture_touch(width, count):
    rounds = np.arange(0, 101, 10)
    names = ["fedivon, at the mean", "fedivon, Monte Carlo", "fedavg", "bayes-admm"]
    lines = [Line(label=name, style=k, x=rounds, y=rounds / 97) for k, name in enumerate(names)]
    panels = [Panel(f"test score {number}", lines) for number in range(count)]
    figure = learning(panels, "a title", width)
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.get_visible()]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    for place, one in enumerate(boxes):
        assert one.x0 >= -1 and one.x1 <= figure.bbox.width + 1
        assert not any(one.overlaps(other) for other in boxes[place + 1 :])
