"""Personal models after a run: a newcomer's, fitted to data of its own, and those that a run's clients kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from flwr.app import RecordDict

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.state import Memory, recall_personal
from fedivon_app.core import client_scores
from fedivon_app.core.codec import Payload
from fedivon_app.core.settings import Settings, SettingsError, validate
from fedivon_app.datasets.loading import Partition, partition_of
from fedivon_app.datasets.npz import npz
from fedivon_app.datasets.sources import DataError
from fedivon_app.methods import method
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained


@dataclass(frozen=True, eq=False)
class Fitted:
    """A newcomer's PM and both models' scores on its test examples; `run` is a folder that `fedivon predict` takes."""

    run: Run
    payload: Payload
    scores: dict[str, dict[str, dict[str, float]]]  # whose model -> way -> scores
    num_train: int
    num_test: int


def personalise(
    run: Run,
    data: Path,
    out: Path,
    epochs: int | None = None,
    learning_rate: float | None = None,
    samples: int | None = None,
    checkpoint: str = "last",
) -> Fitted:
    """Fits a PM from the run's GM to the user's own data as one more round of the method would, and writes it.

    None stands for the run's own epochs, its first learning rate and its final number of samples.
    """
    trained = Trained.open(run, checkpoint)
    source = npz(path=data, num_classes=trained.num_classes)
    if source.shape != trained.shape:
        raise DataError(
            f"{data}: its inputs have shape {source.shape}, the run's model takes {trained.shape}"
        )
    if out.exists() and any(out.iterdir()):
        raise SettingsError(
            f"{out} is not empty: name another folder for the personal model (--out)"
        )
    changes = {
        "client": {} if epochs is None else {"epochs": epochs},
        "evaluation": {"personal": True},
    }
    changes["evaluation"] |= {
        "samples": run.settings.evaluation.final_samples if samples is None else samples
    }
    values = run.settings.model_dump(mode="json")
    for section, news in changes.items():
        values[section] |= news
    settings = validate(type(run.settings), values, {})
    rate = settings.client.learning_rate if learning_rate is None else learning_rate
    with TemporaryDirectory() as kept:
        partition = Partition(
            0, source, np.arange(len(source.y_train)), np.arange(len(source.y_test))
        )
        client = method(settings.strategy).client(settings, partition, RecordDict(), Path(kept))
        arrays = client.codec.encode(trained.payload)
        config = {
            "keys": list(arrays),
            "round": 1,
            "learning-rate": rate,
            "total-examples": len(source.y_train),
        }
        server_round = run.checkpoints()[-1][0] if checkpoint == "last" else run.best()["round"]
        client.fit(list(arrays.values()), config | {"round": server_round + 1})
        asked = config | {"last-merged": server_round + 1, "score-gm": _has_global_model(settings)}
        metrics = client.evaluate(list(arrays.values()), asked)[2]
        own = recall_personal(client.memory(config).recall(server_round + 1))
    tallies = client_scores.from_metrics(metrics)
    scores = {
        who: {way: tally.scores() for way, tally in ways.items()} for who, ways in tallies.items()
    }
    fitted = Fitted(Run(out, settings), own, scores, len(source.y_train), len(source.y_test))
    _write(fitted, run, trained, data, server_round)
    return fitted


def _write(fitted: Fitted, origin: Run, trained: Trained, data: Path, server_round: int) -> None:
    run = fitted.run
    run.folder.mkdir(parents=True, exist_ok=True)
    run.write(
        "settings.yaml", yaml.safe_dump(run.settings.model_dump(mode="json"), sort_keys=False)
    )
    known = {
        "shape": trained.shape,
        "num_classes": trained.num_classes,
        "class_names": trained.class_names,
    }
    run.write("model.json", json.dumps(known) + "\n")
    run.save(server_round + 1, fitted.payload, {"last_merged": np.empty((0, 2), np.int64)})
    told = {
        "from": str(origin.folder),
        "round": server_round,
        "data": str(data),
        "scores": fitted.scores,
    }
    told |= {"num_train": fitted.num_train, "num_test": fitted.num_test}
    run.write("personal.json", json.dumps(told, indent=1) + "\n")


def kept_models(run: Run) -> dict[int, Payload]:
    """The PM of every client that has trained, as the run's last checkpoint knows it, by partition.

    They are in the run's folder if the run was a simulation by `fedivon run`; else each node has its own.
    """
    if run.settings.run.client_state != "run":
        raise SettingsError(
            f"{run.folder}: the personal models of this run are with its nodes (run.client_state: node)"
        )
    if not (checkpoints := run.checkpoints()):
        raise SettingsError(f"{run.folder} has no checkpoint: its run has not got that far")
    merged = run.load(checkpoints[-1][1])[1]["last_merged"]
    found = {}
    for partition, server_round in merged.tolist():
        memory = Memory(None, run.folder / "clients" / f"partition-{partition}").recall(
            server_round
        )
        if (own := recall_personal(memory)) is not None:
            found[partition] = own
    if not found:
        raise SettingsError(
            f"{run.folder}: its clients kept no personal models (evaluation.personal keeps them)"
        )
    return found


def score_again(run: Run) -> dict[str, dict[str, Any]]:
    """GM and PM on every client's test part, from what is on disk: as the last evaluation of the run had it."""
    settings = run.settings
    trained = Trained.open(run)
    models = kept_models(run)
    shared = _has_global_model(settings)
    replies = {}
    sizes = {}
    for partition in range(settings.data.clients):
        node = {"partition-id": partition, "num-partitions": settings.data.clients}
        client: PosteriorClient = method(settings.strategy).client(
            settings, partition_of(settings, node)
        )
        sizes[partition] = len(client.partition.train)
        if not len(client.partition.test):
            continue
        examples = client.examples("test", client.partition.test)
        asked = {"gm": trained.payload} if shared else {}
        asked |= {"pm": models[partition]} if partition in models else {}
        replies[partition] = {who: client.tallies(model, *examples) for who, model in asked.items()}
    return client_scores.gathered(replies, sizes, settings.evaluation.samples)


def _has_global_model(settings: Settings) -> bool:
    return method(settings.strategy).strategy(settings).has_global_model
