"""Methods whose clients run IVON teach the same with fused noise as with torch's."""

from unittest import mock

import pytest
import torch

from fedivon_app.cli.main import main
from fedivon_app.core import normals
from fedivon_app.core.errors import RunError
from tests import golden
from tests.one_process import in_one_process

WORDS = ["rounds=15", "client.epochs=5", "evaluation.every=15", "evaluation.clients_every=15"]
SCORES = ["gm.test.mean.nll", "pm.clients_after_training.mc.nll"]


def scores(method: str, noise: str) -> list[float]:
    golden.prepare_process()
    with mock.patch.object(torch, "set_num_threads"):
        records = golden.run(method, *WORDS, f"client.noise={noise}")
    found = dict(golden.leaves(records[-1]))
    return [found[name] for name in SCORES]


@pytest.mark.parametrize(
    "method", ["fedivon", "fedivon-personal", "bayes-admm", "bregman-admm", "pvi"]
)
def test_scores_are_near_those_with_torchs_noise(method):
    torchs, fused = scores(method, "torch"), scores(method, "fused")
    assert fused == pytest.approx(torchs, rel=0.1)  # fast noise differs from torch's by up to 0.14
    assert fused != torchs  # other digits, so that it was in use


def test_one_seed_gives_the_same_digits():
    assert scores("fedivon", "fused") == scores("fedivon", "fused")


def without_numba(monkeypatch):
    monkeypatch.setattr(normals, "find_spec", lambda name: None)


def test_without_numba_a_run_is_refused_before_it_starts(monkeypatch, capsys, tmp_path):
    without_numba(monkeypatch)
    federation = in_one_process(monkeypatch)
    assert main(["run", "demo", "--set", "client.noise=fused", "--runs", str(tmp_path)]) == 2
    assert "pip install 'fedivon[fast]'" in capsys.readouterr().err
    assert federation.configs == []


def test_a_site_without_numba_says_so_in_the_roll_call(monkeypatch):
    without_numba(monkeypatch)
    golden.prepare_process()
    with (
        mock.patch.object(torch, "set_num_threads"),
        pytest.raises(RunError, match=r"pip install 'fedivon\[fast\]'"),
    ):
        golden.run("fedivon", "client.noise=fused")
