"""The server's trial of a model on its held-out examples."""

from math import inf

import numpy as np
import pytest

from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.setup import prepare
from fedivon_app.server.trial import trial_of
from tests.server.helpers import demo


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_trial_is_the_held_out_nll(task, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 6)).astype(np.float32)
    y = x[:, 0] if task == "regression" else (x[:, 0] > 0).astype(np.int64)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    own = [f"task={task}", "data.source=npz", f"data.path={tmp_path / 'own.npz'}"]
    settings = demo("merge.robust=held-out", "data.holdout=80", "data.partition=iid", *own)
    prepared = prepare(settings)
    trial = trial_of(settings, prepared)
    payload = Payload(Posterior(prepared.flat.mean()))
    scores = Evaluator(settings, prepared.flat, prepared.data.parts).score("holdout", payload, 0)
    assert trial(payload) == pytest.approx(scores["mean"]["nll"], rel=1e-5)


def test_weights_that_nothing_can_be_computed_with_are_worse_than_any():
    settings = demo("merge.robust=held-out", "data.holdout=80")
    prepared = prepare(settings)
    trial = trial_of(settings, prepared)
    far = 1e30 * np.random.default_rng(0).standard_normal(len(prepared.flat))
    assert trial(Payload(Posterior(far.astype(np.float32)))) == inf


def test_nobody_tries_anything_unless_it_is_asked_for():
    settings = demo("data.holdout=80", "merge.robust=auto")
    assert trial_of(settings, prepare(settings)) is None
