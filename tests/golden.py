"""Two rounds of every method in one process, with the real server and the real clients, as numbers
to compare with.

    python -m tests.golden record FILE    # the metrics of every method, to the last digit
    python -m tests.golden compare FILE   # run them again, and name every method that differs
    python -m tests.golden write          # the numbers that tests/test_golden.py holds the code to

`record` and `compare` are for one machine, before and after a change that must not change a
number; what the test compares with is rounded, for other processors round differently.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedivon_app import client_app, server_app
from fedivon_app.methods import METHODS
from fedivon_app.runs.folder import Run

GOLDEN = Path(__file__).with_name("golden.json")
CLIENTS = 4
WORDS = [
    f"data.clients={CLIENTS}",
    "clients_per_round=3",
    "rounds=2",
    "client.epochs=2",
    "evaluation.every=1",
    "evaluation.samples=4",
    "evaluation.final_samples=4",
    "evaluation.clients_every=1",
    "evaluation.personal=true",
    "run.client_state=run",
]
SMALL = ["model.options={sizes: [16], activation: relu}", "data.shard_sizes=[8,20]"]
VARIANTS = {
    "fedivon, batch norm": ["model.name=resnet", "model.options={channels: [4], blocks: 1}"],
    "fedivon, dwc, distance, held out": [
        "merge.rule=dwc",
        "merge.weighting=distance",
        "data.holdout=50",
    ],
    "fedivon, linear pool": ["merge.rule=lp", "merge.weighting=max-discrepancy"],
    "flipout, pretraining": ["pretraining.fraction=0.1", "pretraining.epochs=2"],
    "pfedhb, all train": ["train_all_clients=true"],
    "fedavg, all train": ["train_all_clients=true"],
}


class InProcess:
    """A grid whose nodes are the ClientApp itself, called when a message is pushed."""

    def __init__(self, count: int):
        self.contexts = {
            100 + 7 * number: Context(
                run_id=1,
                node_id=100 + 7 * number,
                node_config={"partition-id": number, "num-partitions": count},
                state=RecordDict(),
                run_config={},
            )
            for number in range(count)
        }
        self.replies: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            node_id = message.metadata.dst_node_id
            name = f"message-{len(self.replies)}-{node_id}"
            message.metadata._message_id = name  # what a SuperLink would set
            names.append(name)
            try:
                self.replies[name] = client_app.app(message, self.contexts[node_id])
            except Exception as error:
                self.replies[name] = Message(Error(code=2, reason=str(error)), reply_to=message)
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Message]:
        return [self.replies.pop(name) for name in list(names) if name in self.replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))


def context_of(config: dict[str, str]) -> Context:
    """The context of a server whose run has this config."""
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)


def run(case: str, *more: str, grid: Grid | None = None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl of a short run of a method or a variant of it, without their
    times; `more` are settings that it has besides. The nodes are those of the grid, or in this
    process.
    """
    method = case.partition(",")[0]
    experiment = "digits-regression" if method == "bayes-admm-full" else "demo"
    words = [
        *WORDS,
        *([] if method == "bayes-admm-full" else SMALL),
        *VARIANTS.get(case, []),
        *more,
    ]
    with tempfile.TemporaryDirectory() as place, mock.patch.object(server_app, "write_report"):
        config = {"experiment": experiment, "strategy": method, "runs": place}
        config["set"] = " ".join(f"'{word}'" for word in words)
        server_app.main(grid or InProcess(CLIENTS), context_of(config))
        (folder,) = Path(place).iterdir()
        return [
            {key: value for key, value in record.items() if key != "seconds"}
            for record in Run.open(folder).metrics()
        ]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The plain values inside of a record by their paths, in which all places of a list are called
    [].
    """
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from leaves(inside, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inside in value:
            yield from leaves(inside, f"{path}[]")
    else:
        yield path, value


def condensed(records: list[dict[str, Any]]) -> dict[str, float]:
    """What the last record holds: for every path the sum of its numbers."""
    sums: dict[str, float] = {}
    for path, value in leaves(records[-1]):
        sums[path] = sums.get(path, 0.0) + (float(value) if isinstance(value, int | float) else 1.0)
    return {path: float(f"{value:.5g}") for path, value in sums.items()}


def prepare_process() -> None:
    """What Flower sets in its own processes, and one thread, so that sums have one order."""
    torch.set_num_threads(1)
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


def main(action: str, file: str | None = None) -> int:
    prepare_process()
    with mock.patch.object(torch, "set_num_threads"):
        found = {name: run(name) for name in [*METHODS, *VARIANTS]}
    if action == "write":
        lines = [
            f"{json.dumps(name)}: {json.dumps(condensed(records))}"
            for name, records in found.items()
        ]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    path = Path(str(file))
    if action == "record":
        path.write_text(json.dumps(found))
        return 0
    before = json.loads(path.read_text())
    now = json.loads(json.dumps(found))
    differ = [name for name in before if before[name] != now.get(name)]
    for name in differ:
        pairs = zip(leaves(before[name]), leaves(now.get(name, [])), strict=False)
        where = next(
            (f"{one} is now {other}" for one, other in pairs if one != other), "another length"
        )
        print(f"{name}: {where}")
    print(
        f"{len(before) - len(differ)} of {len(before)} runs give the same metrics, "
        f"{len(differ)} differ"
    )
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
