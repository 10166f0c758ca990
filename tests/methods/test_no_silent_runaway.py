"""FedIvon at the corners of what one may set: it learns, or the run says that it did not."""

from contextlib import suppress
from math import log
from pathlib import Path
from unittest import mock

import pytest
import torch

from fedivon_app import server_app
from fedivon_app.core.errors import RunError
from fedivon_app.report.results import RunResults
from fedivon_app.runs.folder import Run
from tests.golden import InProcess, context_of

SHORT = [
    "rounds=20",
    "data.holdout=200",
    "model.options={sizes: [16], activation: relu}",
    "evaluation.every=0",
    "evaluation.final_samples=8",
    "evaluation.clients_every=0",
    "client.learning_rate=1",
    "client.final_learning_rate=0.1",
]


def results_of(place: Path, **client: object) -> RunResults:
    words = [*SHORT, *(f"client.{name}={value}" for name, value in client.items())]
    config = {"experiment": "demo", "runs": str(place)}
    config["set"] = " ".join(f"'{word}'" for word in words)
    with (
        mock.patch.object(server_app, "write_report"),
        mock.patch.object(torch, "set_num_threads"),
        suppress(RunError),
    ):  # the folder says why
        server_app.main(InProcess(20), context_of(config))
    (folder,) = place.iterdir()
    return RunResults.read(Run.open(folder))


@pytest.mark.parametrize(("beta2", "ess"), [(0.99, 500), (0.999, 1e5)])
def test_auto_learns_with_any_ess_and_beta2(beta2, ess, tmp_path):
    results = results_of(tmp_path, hess_init="auto", beta2=beta2, ess=ess, step_bound=3)
    (scores,) = results.scores("holdout", "mc").values()
    assert scores["nll"] < 0.8 * log(10)
    assert results.detail == ""


@pytest.mark.parametrize(
    ("hess_init", "ess", "bound"),
    [(0.001, 500, {}), (0.001, 500, {"step_bound": 1}), (10, 500, {}), ("auto", 1e6, {})],
)
def test_what_runs_away_or_stands_still_says_so(hess_init, ess, bound, tmp_path):
    """A first sigma of 1.3 drowns the network. From 10 the hessian falls, which does no harm yet.

    With an ess of 1e6 and a beta2 of 0.99 the noise in the hessian, (1 - beta2) ess g^2 / 2, is all
    that it is, and where gradients are large no step is left.
    """
    results = results_of(tmp_path, hess_init=hess_init, ess=ess, beta2=0.99, **bound)
    ways = [results.scores("holdout", way) for way in ("mean", "mc")]
    learned = all(ways) and all(s["nll"] < 0.9 * log(10) for way in ways for s in way.values())
    why = results.detail
    assert learned or "diverged" in why or "hardly better than guessing" in why
    assert learned == (hess_init == 10)
