"""Short runs in one process, with the real ServerApp and ClientApp, and what they scored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

import torch
from flwr.app import Context, RecordDict

from fedivon_app import server_app
from fedivon_app.core.compose import compose
from fedivon_app.datasets.sources import default_root
from fedivon_app.methods import settings_of
from fedivon_app.runs.folder import Run
from tests.golden import InProcess

QUICK = ["run.client_state=run", "evaluation.clients_every=0", "evaluation.samples=0"]
NO_FMNIST = not (default_root() / "fmnist.npz").is_file()


def records_of(
    experiment: str,
    strategy: str,
    place: Path,
    words: Sequence[str],
    *,
    rounds: Sequence[int],
    seed: int,
    grid: InProcess | None = None,
) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl of a run that is scored at its mean after these rounds.

    It stops after the last of them, with the learning rates of the whole experiment.
    """
    scored = f"evaluation.at={list(rounds)}".replace(" ", "")
    told = [*QUICK, "evaluation.every=0", scored, f"run.stop_after={rounds[-1]}", f"seed={seed}"]
    told += words
    settings = compose(settings_of, experiment, strategy, told)
    assert settings.data.clients is not None
    config = {"experiment": experiment, "strategy": strategy, "runs": str(place)}
    config["set"] = " ".join(f"'{word}'" for word in told)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    before = set(place.iterdir())
    with (
        mock.patch.object(server_app, "write_report"),
        mock.patch.object(torch, "set_num_threads"),
    ):
        server_app.main(grid or InProcess(settings.data.clients), context)
    (folder,) = set(place.iterdir()) - before
    return list(Run.open(folder).metrics())


def score(records: Sequence[dict[str, Any]], name: str = "accuracy") -> float:
    """Return the mean over the rounds that were scored of the global model's score."""
    scored = [record["gm"]["test"]["mean"][name] for record in records if record.get("gm")]
    return mean(scored)


def turned_away(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line about every reply that was cut back or dropped."""
    found = []
    for record in records:
        found += [f"{c['partition']} {c['bounded']}" for c in record["clients"] if "bounded" in c]
        found += [f"{one['partition']} {one['reason']}" for one in record["dropped"]]
    return found
