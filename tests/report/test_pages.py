"""Learning curves of several runs in one picture."""

import re

import numpy as np
import pytest
from PIL import Image

from fedivon_app.core.errors import UserError
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
