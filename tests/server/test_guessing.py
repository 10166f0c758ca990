"""A model that learned nothing is told from one that did, by what a guess would score."""

from math import inf, log, nan

import pytest

from fedivon_app.server.guessing import no_better_than_guessing


@pytest.mark.parametrize("nll", [0.95 * log(10), log(10), 7.2, inf, nan])
def test_an_nll_near_that_of_a_guess_or_above_it_is_named(nll):
    scores = {"holdout": {"mean": {"nll": 0.3}, "mc": {"nll": nll}}}
    said = no_better_than_guessing(scores, num_classes=10)
    assert said.startswith("hardly better than guessing") and "(holdout, mc)" in said
    assert "10 classes gives 2.303" in said


def test_who_has_learned_something_is_left_in_peace():
    assert no_better_than_guessing({"test": {"mean": {"nll": 0.8 * log(10)}}}, 10) is None
    assert no_better_than_guessing({}, 10) is None
