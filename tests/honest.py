"""Two rounds of every experiment with every method, to see that the guard touches nobody honest.

    python -m tests.honest [EXPERIMENT ...]     # a line for every pair in which a reply is bounded

The partition is that of the experiment, and so are the data where they are on this machine; else
the digits stand in for them. What takes long is cut: one local epoch, three clients a round with
at most 120 examples each, and a small network.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import torch

from fedivon_app.core.compose import CONF, compose
from fedivon_app.core.errors import UserError
from fedivon_app.methods import METHODS, method, settings_of
from fedivon_app.server.setup import prepare
from fedivon_app.strategies.rounds import Rounds
from tests.golden import InProcess, prepare_process

SHORT = [
    "rounds=2",
    "client.epochs=1",
    "evaluation.every=0",
    "evaluation.clients_every=0",
    "data.max_examples=120",
    "pretraining.fraction=0",
]
SMALL = ["model={name: mlp, options: {sizes: [16], activation: relu}}"]
DIGITS = [  # what stands in for data that have to be fetched
    "dataset=null",
    "data.source=digits",
    "data.path=null",
    "data.shape=null",
    "data.num_classes=null",
    "data.labels=fine",
    "data.shard_sizes=null",
    "data.shards_per_client=3",
    "data.labels_per_client=5",
    "data.per_class=15",
    "data.holdout=0",
]
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))


class Records:
    """An observer that keeps the rounds' records."""

    def __init__(self) -> None:
        self.records: list[dict] = []

    def score(self, server_round, payload):
        return None

    def finished(self, standing, record) -> bool:
        self.records.append(record)
        return False


def settings_for(experiment: str, name: str, digits: bool):
    """The shipped settings, cut to what is quick."""
    full = compose(settings_of, experiment, name)
    clients = min(full.data.clients or 4, 8) if digits else full.data.clients or 4
    words = [*SHORT, f"data.clients={clients}", f"clients_per_round={min(3, clients)}"]
    if not full.privacy.secure_aggregation:
        words.append("server.history=true")  # claims of precision are judged from the first on
    if name != "bayes-admm-full" and full.model.name != "linear":
        words += SMALL
    if digits and full.data.source not in ("digits", "synthetic"):
        words += DIGITS
        if full.data.partition == "superclass":  # the digits have none
            words.append("data.partition=labels")
    return compose(settings_of, experiment, name, words)


def bounded(experiment: str, name: str, digits: bool = False) -> list[str]:
    """What the guard found in two rounds, and what else was dropped, a line each.

    With `digits` these stand in for data that are not on this machine.
    """
    settings = settings_for(experiment, name, digits)
    return _bounded(name, settings.model_dump_json(exclude={"experiment"}))


@cache
def _bounded(name: str, settings_json: str) -> list[str]:
    """The same; experiments that are cut to the same are run once."""
    values = json.loads(settings_json) | {"experiment": "any"}
    settings = settings_of(name).model_validate(values)
    prepared = prepare(settings)
    strategy = method(name).strategy(settings, prepared.architecture)
    first = strategy.begin(prepared.flat.mean(), prepared.flat.buffers)
    records = Records()
    with TemporaryDirectory() as folder:
        loop = Rounds(strategy, first, run_folder=Path(folder))
        loop.start(InProcess(settings.data.clients), loop.arrays(), 2, observer=records)
    found = []
    for record in records.records:
        found += [f"{c['partition']} {c['bounded']}" for c in record["clients"] if "bounded" in c]
        found += [f"{one['partition']} dropped: {one['reason']}" for one in record["dropped"]]
    return found


def main(experiments: list[str]) -> int:
    prepare_process()
    guilty = 0
    with mock.patch.object(torch, "set_num_threads"):
        for experiment in experiments or EXPERIMENTS:
            for name in METHODS:
                try:
                    found = bounded(experiment, name)
                except UserError as error:
                    found = []
                    print(f"{experiment} {name}: does not fit: {str(error).splitlines()[0][:90]}")
                except Exception as error:
                    found = [f"{type(error).__name__}: {error}"]
                if found:
                    guilty += 1
                    print(f"{experiment} {name}: {found[0][:100]} ({len(found)} in all)")
    print(f"{guilty} pairs in which somebody was bounded or dropped")
    return 1 if guilty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
