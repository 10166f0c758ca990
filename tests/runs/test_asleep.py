"""What the settings leave off is not run, so that no number depends on it."""

import sys
import threading
from collections import Counter
from importlib import import_module

import pytest
import torch

from fedivon_app.core.compose import compose
from fedivon_app.methods import METHODS, settings_of
from fedivon_app.runs.asleep import asleep
from fedivon_app.runs.fingerprint import ASLEEP, code_of
from tests import golden

SHORT = ["rounds=1", "client.epochs=1"]
UNSCORED = ["evaluation.personal=false", "evaluation.clients_every=0"]
SWITCHES = {
    "strategies.attacks": ["attack.kind=sign-flip", "attack.share=0.3"],
    "core.symbols": ["wire.codec=compact"],
    "core.fused_step": ["client.noise=fused"],
    "strategies.portraits": ["merge.robust=auto"],
    "datasets.noise": ["data.label_noise=0.2"],
    "server.pretraining": ["pretraining.fraction=0.1", "pretraining.epochs=1"],
    "core.accountant": ["privacy.epsilon=4", *UNSCORED],
    "core.standardise": ["data.standard={mean: [0.3], deviation: [1.0]}"],
    "core.secure.fixed_point": ["privacy.secure_aggregation=true", *UNSCORED],
}


def settings(strategy="fedivon", *words):
    return compose(settings_of, "demo", strategy, list(words))


def calls(monkeypatch, case, *words):
    """How often functions of each module were called in a short run in this process."""
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    names = {import_module(name).__file__: name for name in asleep(settings())}
    found = Counter()

    def note(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename in names:
            found[names[code.co_filename]] += 1

    golden.prepare_process()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        golden.run(case, *SHORT, *words)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


@pytest.mark.parametrize("name", METHODS)
def test_nothing_that_is_asleep_is_called_by_any_method(name, monkeypatch):
    assert not calls(monkeypatch, name)


@pytest.mark.parametrize(
    "module", [name for name in SWITCHES if not name.startswith("core.secure.")]
)
def test_a_setting_wakes_what_it_needs_and_nothing_else(module, monkeypatch):
    words = SWITCHES[module]
    found = calls(monkeypatch, "fedivon", *words)
    assert found[f"fedivon_app.{module}"]
    assert not found.keys() & asleep(settings("fedivon", *words))


@pytest.mark.parametrize("module", SWITCHES)
def test_the_code_of_a_run_counts_a_module_whole_only_where_it_is_awake(module):
    name = f"fedivon_app.{module}"
    off = code_of(settings())
    on = code_of(settings("fedivon", *SWITCHES[module]))
    assert name + ASLEEP in off or name not in off
    assert name not in off and name in on
