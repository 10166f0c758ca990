"""The shipped guard touches nobody honest: two rounds of every experiment with every method."""

import pytest
import torch

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import DivergenceError, SettingsError
from fedivon_app.methods import METHODS, settings_of
from tests.honest import EXPERIMENTS, bounded

LINEAR_ONLY = "bayes-admm-full"  # which is refused for any other network
NOT_PRIVATE = "differential privacy is for"  # methods that a private experiment refuses


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_no_experiment_loses_an_honest_reply(experiment, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    ran = []
    for method in METHODS:
        try:
            found = bounded(experiment, method, digits=True)
        except SettingsError as error:
            assert method == LINEAR_ONLY or NOT_PRIVATE in str(error), (method, error)
            continue
        except DivergenceError:  # rates that were chosen for other data than the digits
            continue
        assert found == [], (method, found)
        ran.append(method)
    private = compose(settings_of, experiment).privacy.is_private
    assert len(ran) >= (10 if private else 20), ran
