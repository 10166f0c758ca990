"""The pictures of a search: values in order, and numbers below them that can be read."""

from itertools import pairwise

from fedivon_app.core.search_range import Choices, log_range
from fedivon_app.tuning.halving import Trial
from fedivon_app.tuning.pictures import in_order, place_of, setting_figure


def trial(number, **values):
    return Trial(number=number, values=values, scores={1: 2.0 - 0.1 * number})


def below(figure):
    figure.draw_without_rendering()
    (axes,) = figure.axes
    return [text for text in axes.get_xticklabels() if text.get_text()]


def test_choices_that_are_numbers_stand_by_their_size():
    option = Choices((0.999, 0.9995, 0.99999, 0.993))  # the last one is the experiment's own
    trials = [trial(0, beta2=0.993), trial(1, beta2=0.99999)]
    assert [place_of(one, "beta2", option) for one in trials] == [0, 3]
    words = [text.get_text() for text in below(setting_figure("beta2", option, trials, [1]))]
    assert words == ["0.993", "0.999", "0.9995", "0.99999"]
    assert in_order(Choices(("size", "equal"))) == ["size", "equal"]


def test_numbers_below_a_logarithmic_axis_do_not_touch():
    figure = setting_figure("ess", log_range(600, 300_000), [trial(0, ess=5000.0)], [1])
    boxes = [text.get_window_extent() for text in below(figure)]
    assert len(boxes) >= 3
    gaps = [other.x0 - one.x1 for one, other in pairwise(boxes)]
    assert min(gaps) > boxes[0].height / 2
