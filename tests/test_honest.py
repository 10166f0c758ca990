"""The shipped guard touches nobody honest: two rounds of every experiment with every method."""

import pytest
import torch

from fedivon_app.core.errors import DivergenceError, SettingsError
from fedivon_app.methods import METHODS
from tests.honest import EXPERIMENTS, bounded

LINEAR_ONLY = "bayes-admm-full"  # which is refused for any other network


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_no_experiment_loses_an_honest_reply(experiment, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    ran = []
    for method in METHODS:
        try:
            found = bounded(experiment, method, digits=True)
        except SettingsError as error:
            assert method == LINEAR_ONLY, (method, error)
            continue
        except DivergenceError:  # rates that were chosen for other data than the digits
            continue
        assert found == [], (method, found)
        ran.append(method)
    assert len(ran) >= 20, ran
