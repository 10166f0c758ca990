"""Clients of the demo's digits with what they are sent, and two that contradict each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.state import recall_personal, with_personal
from fedivon_app.clients.task import ClientReply
from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.compose import compose
from fedivon_app.core.flat import Flat
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.models import build
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.node_data import Partition, partition_of
from fedivon_app.methods import method, settings_of
from fedivon_app.server.setup import prepare

EACH = 40
BATCH_NORM = ["model.name=resnet", "model.options={channels: [4], blocks: 1}"]
SMALL = ["model.options={sizes: [12, 8], activation: tanh}"]


def conflict() -> Source:
    """Return the data of two clients with the same inputs and opposite labels.

    Whatever one model says is right for half of them.
    """
    x = np.random.default_rng(0).standard_normal((EACH, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    return Source("conflict", np.r_[x, x], np.r_[y, 1 - y], np.r_[x, x], np.r_[y, 1 - y], 2)


SOURCE = conflict()


def first_payload(settings: AnySettings) -> Payload:
    """Return what the server sends in round 1."""
    prepared = prepare(settings)
    strategy = method(settings.strategy).strategy(settings, prepared.architecture)
    return strategy.begin(prepared.flat.mean(), prepared.flat.buffers)


def part_of(settings: AnySettings, number: int = 3) -> Partition:
    """Return a client's share of the demo's data, which are dealt to twenty."""
    return partition_of(settings, {"partition-id": number, "num-partitions": 20})


def new_client(
    settings: AnySettings, state: RecordDict | None = None, folder: Path | None = None
) -> PosteriorClient[Any, Any]:
    """Return the client of partition 3, as it is made anew for every message."""
    return method(settings.strategy).client(settings, part_of(settings), state, folder)


@dataclass(frozen=True, eq=False)
class Asked:
    """A client, and what it is sent in round 1."""

    client: PosteriorClient[Any, Any]
    start: Payload


def client_of(name: str, folder: Path, *words: str) -> Asked:
    """Return the client of partition 3 with these overrides of the demo's settings."""
    settings = compose(settings_of, "demo", name, words)
    return Asked(new_client(settings, folder=folder), first_payload(settings))


def instructions(client: PosteriorClient[Any, Any], number: int = 1, **more: Any) -> Instructions:
    """Return what the server says in a round, having merged the client's reply in the last."""
    given = {
        "round": number,
        "learning_rate": client.settings.client.learning_rate,
        "first": number == 1,
        "last_merged": number - 1,
    }
    return Instructions(**(given | more))


@dataclass(frozen=True, eq=False)
class Trained:
    """What there is after a round: the client's reply, and its PM where it keeps one."""

    reply: ClientReply
    own: Payload | None

    @property
    def sent(self) -> Payload:
        """Return what the client sent."""
        assert self.reply.payload is not None
        return self.reply.payload


def trained(client: PosteriorClient[Any, Any], start: Payload, number: int = 1) -> Trained:
    """Return what a client makes of a round that begins at `start`."""
    told = instructions(client, number)
    reply = client.work(start, told)
    return Trained(reply, recall_personal(client.memory(told).recall(number)))


def remember(client: PosteriorClient[Any, Any], own: Payload, number: int = 1) -> None:
    """Have the client keep this PM as that of the round."""
    client.memory(instructions(client)).keep(number, with_personal({}, own))


def arrays_of(payload: Payload) -> list[np.ndarray]:
    """Return the arrays of a payload, in the order of the wire."""
    return list(Raw().encode(payload).values())


def accuracy(own: Payload, k: int, **options: Any) -> float:
    """Return how often the model is right on the data of client k of the two."""
    flat = Flat(build("mlp", SOURCE.shape, SOURCE.num_classes, **options))
    flat.load(own.posterior.mean)
    rows = slice(k * EACH, (k + 1) * EACH)
    found = flat.module(torch.from_numpy(SOURCE.x_train[rows])).argmax(1).numpy()
    return float((found == SOURCE.y_train[rows]).mean())


QUICK = {"optimizer": "sgd", "learning_rate": 0.5, "epochs": 20, "batch_size": EACH}
