"""Learning curves of several runs in one picture."""

import numpy as np
from PIL import Image

from fedivon_app.report.pages import plot_learning
from tests.report.pages import new_run, record, scores


def test_the_learning_curve_is_drawn(tmp_path):
    run = new_run(tmp_path / "runs", status=None)
    path = tmp_path / "plots" / "learning.png"
    assert not plot_learning([run], path)
    for number in (5, 10, 15):
        gm = {"test": {"mean": scores(number / 20), "mc": scores(0.5, 1.25, 0.125, samples=4)}}
        run.append(record(number, gm=gm))
    assert plot_learning([run, run], path, ["one", "other"])
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.shape[0] > 300 and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
