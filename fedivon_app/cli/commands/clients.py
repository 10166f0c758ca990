"""Scores a run's personal models again, client by client.

The models are those that the clients of a simulation kept on disk.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from fedivon_app.cli.parser import add_run
from fedivon_app.cli.tables import MISSING, heading_of, layout
from fedivon_app.core.scores import headline
from fedivon_app.runs.folder import Run
from fedivon_app.runs.personalise import score_again

OVER_CLIENTS = {  # how accuracies spread over the clients, and what the table calls it
    "mean": "mean",
    "weighted": "by size",
    "std": "spread",
    "worst_decile": "worst tenth",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_run(parser)


def run(options: argparse.Namespace) -> int:
    """Print the scores of every client, and return the exit status."""
    print(clients_table(score_again(Run.open(options.run))))
    return 0


def clients_table(scored: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of every client's accuracy at the mean, and of what they come to together.

    `scored` has for each model, `gm` and `pm`, the scores on the clients' test parts.
    """
    models = {model.upper(): next(iter(places.values())) for model, places in scored.items()}
    by_client = [
        {client["partition"]: client for client in part["by_client"]} for part in models.values()
    ]
    first = next(client for clients in by_client for client in clients.values())
    shown = headline(first)
    rows = [["client", "examples", *(f"{model} {heading_of(shown)}" for model in models)]]
    for partition in sorted({partition for clients in by_client for partition in clients}):
        held = [clients.get(partition) for clients in by_client]
        size = next(client["num_train"] for client in held if client)
        cells = [shown.text(client[shown.name]) if client else MISSING for client in held]
        rows.append([str(partition), str(size), *cells])
    for name, words in OVER_CLIENTS.items():
        values = [part["over_clients"]["mean"][name] for part in models.values()]
        rows.append([words, "", *(shown.text(value) for value in values)])
    return layout(rows, words=1)
