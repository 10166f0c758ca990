"""Personal models after a run: a newcomer's, and those that a run's clients kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from flwr.app import RecordDict

from fedivon_app.clients.state import Memory, recall_personal
from fedivon_app.core import client_scores
from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import validate
from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.network import Architecture
from fedivon_app.core.scores import chosen_scores, values_of
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import own_source
from fedivon_app.datasets.node_data import Partition, partition_of
from fedivon_app.datasets.table_file import is_table
from fedivon_app.methods import method
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained, Which, model_facts
from fedivon_app.server.setup import agreed, num_clients_of
from fedivon_app.strategies.standing import Standing


@dataclass(frozen=True, eq=False)
class Fitted:
    """A newcomer's PM, and both models' scores on its test examples.

    `run` is a folder that `fedivon predict` takes; `scores` are by whose model and way.
    """

    run: Run
    payload: Payload
    scores: dict[str, dict[str, dict[str, float]]]
    num_train: int
    num_test: int


def personalise(
    run: Run,
    data: Path,
    out: Path,
    *,
    epochs: int | None = None,
    learning_rate: float | None = None,
    samples: int | None = None,
    checkpoint: Which = "last",
) -> Fitted:
    """Fit a PM from the run's GM to the user's own data, and write it.

    It is done as one more round of the method would do it. None stands for the run's own epochs,
    its first learning rate and its final number of samples.
    """
    trained = Trained.open(run, checkpoint)
    known = trained.settings
    if trained.table is not None:
        known = known.model_copy(update={"data": agreed(known.data, trained.table)})
    elif is_table(data):
        raise DataError(
            f"{data} is a table, but the run's model was not trained on tables: give an .npz file "
            f"with inputs of shape {trained.shape}"
        )
    source = own_source(known, data)
    if source.shape != trained.shape:
        raise DataError(
            f"{data}: its inputs have shape {source.shape}, the run's model takes {trained.shape}"
        )
    if out.exists() and any(out.iterdir()):
        raise SettingsError(
            f"{out} is not empty: name another folder for the personal model (--out)"
        )
    settings = _settings(known, epochs, samples)
    rate = settings.client.learning_rate if learning_rate is None else learning_rate
    next_round = trained.round + 1
    with TemporaryDirectory() as kept:
        partition = Partition(
            number=0,
            source=source,
            train=np.arange(len(source.y_train)),
            test=np.arange(len(source.y_test)),
        )
        client = method(settings.strategy).client(settings, partition, RecordDict(), Path(kept))
        total = len(source.y_train)
        train = Instructions(round=next_round, learning_rate=rate, total_examples=total)
        client.work(trained.payload, train)
        score = Instructions(
            round=next_round, last_merged=next_round, score_gm=has_global_model(settings)
        )
        tallies = client.score(trained.payload, score)
        own = recall_personal(client.memory(train).recall(next_round))
    assert own is not None  # it has just been kept
    scores = chosen_scores(settings.evaluation.scores, settings.task)
    fitted = Fitted(
        run=Run(out, settings),
        payload=own,
        scores={
            who: {way: values_of(tally, scores) for way, tally in ways.items()}
            for who, ways in tallies.items()
        },
        num_train=len(source.y_train),
        num_test=len(source.y_test),
    )
    _write(fitted, origin=run, trained=trained, data=data)
    return fitted


def _settings(settings: AnySettings, epochs: int | None, samples: int | None) -> AnySettings:
    """Return the run's settings with those changes that a newcomer asks for."""
    values = settings.model_dump(mode="json")
    if epochs is not None:
        values["client"]["epochs"] = epochs
    final = settings.evaluation.final_samples
    values["evaluation"] |= {"personal": True, "samples": final if samples is None else samples}
    return validate(type(settings), values)


def _write(fitted: Fitted, *, origin: Run, trained: Trained, data: Path) -> None:
    run = fitted.run
    run.folder.mkdir(parents=True, exist_ok=True)
    run.write_settings()
    run.write("model.json", json.dumps(model_facts(origin).facts) + "\n")
    standing = Standing(trained.round + 1, fitted.payload)
    run.save(Checkpoint(standing.round, standing.payload, standing.arrays()))
    told = {
        "from": str(origin.folder),
        "round": trained.round,
        "data": str(data),
        "scores": fitted.scores,
        "num_train": fitted.num_train,
        "num_test": fitted.num_test,
    }
    run.write("personal.json", json.dumps(told, indent=1) + "\n")


def kept_models(run: Run) -> dict[int, Payload]:
    """Return the PM of every client that has trained, by partition.

    They are those that the run's last checkpoint knows. They are in the run's folder if the run was
    a simulation by `fedivon run`; else each node has its own.
    """
    if run.settings.run.client_state != "run":
        raise SettingsError(
            f"{run.folder}: the personal models of this run are with its nodes "
            "(run.client_state: node)"
        )
    none_kept = (
        f"{run.folder}: its clients kept no personal models (evaluation.personal keeps them)"
    )
    if not (checkpoints := run.checkpoints()):
        raise SettingsError(f"{run.folder} has no checkpoint: its run has not got that far")
    if not (run.folder / "clients").is_dir():
        raise SettingsError(none_kept)
    last = run.load(checkpoints[-1].path)
    standing = Standing.of(last.round, last.payload, last.state)
    found = {}
    for partition, server_round in standing.last_merged.items():
        memory = Memory(None, run.folder / "clients" / f"partition-{partition}")
        own = recall_personal(memory.recall(server_round))
        if own is not None:
            found[partition] = own
    if not found:
        raise SettingsError(none_kept)
    return found


def score_again(run: Run) -> dict[str, dict[str, Any]]:
    """Return the scores of GM and PM on every client's test part, from what is on disk.

    They are as the last evaluation of the run had them.
    """
    models = kept_models(run)
    trained = Trained.open(run)
    settings = trained.settings
    shared = has_global_model(settings)
    num_clients = num_clients_of(settings)
    replies = {}
    sizes = {}
    for partition in range(num_clients):
        node = {"partition-id": partition, "num-partitions": num_clients}
        client = method(settings.strategy).client(settings, partition_of(settings, node))
        sizes[partition] = len(client.partition.train)
        if not len(client.partition.test):
            continue
        asked = {"gm": trained.payload} if shared else {}
        if partition in models:
            asked["pm"] = models[partition]
        replies[partition] = client.tallies(asked)
    return client_scores.gathered(
        replies,
        sizes,
        settings.evaluation.samples,
        scores=chosen_scores(settings.evaluation.scores, settings.task),
    )


def has_global_model(settings: AnySettings) -> bool:
    """Tell whether the server of the settings' method holds a model that can be scored."""
    return method(settings.strategy).strategy(settings, Architecture()).has_global_model
