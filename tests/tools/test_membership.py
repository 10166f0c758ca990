"""The membership attack: its advantage, and the sum that a server sees of a round."""

import runpy
from types import SimpleNamespace

import numpy as np
import pytest

from fedivon_app.clients.task import ClientReply
from fedivon_app.core.codec import Coded, Payload
from fedivon_app.core.posterior import Posterior
from tests.documents import ROOT

TOOL = runpy.run_path(str(ROOT / "tools" / "membership.py"))


def test_advantage_is_that_of_the_best_threshold():
    """At a threshold of 1 three of four members are below, and one of four others."""
    members = np.array([0.1, 0.2, 0.3, 2.0])
    others = np.array([0.4, 1.5, 1.6, 3.0])
    assert TOOL["advantage"](members, others) == 0.75


def test_who_cannot_be_told_apart_gives_no_advantage():
    losses = np.array([0.3, 0.1, 0.2])
    assert TOOL["advantage"](losses, losses) == 0


def reply(mean, precision, num_examples):
    payload = Payload(Posterior(np.array([mean]), np.array([precision])))
    return ClientReply(Coded({}, payload), num_examples, {})


def test_the_sum_is_the_merge_of_all_replies_by_size():
    """Weights are 3/4 and 1/4: s = 3/4 + 3/4, and the mean is 3/4 of 8, divided by s."""
    settings = SimpleNamespace(merge=SimpleNamespace(rule="product"))
    start = Payload(Posterior(np.zeros(1), np.ones(1)))
    found = TOOL["merged"](settings, [reply(0.0, 1.0, 300), reply(8.0, 3.0, 100)], start)
    assert found.posterior.mean == pytest.approx([4.0])
    assert found.posterior.known_precision == pytest.approx([1.5])
