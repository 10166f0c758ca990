"""A whole federation in one process: real clients and a real strategy's merge, without Flower."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict

from fedivon_app.clients.state import recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.models import build
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.node_data import Partition
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.base import Reply, Round


@dataclass(frozen=True)
class Federated:
    """What there is after the last round."""

    server: Posterior
    personal: list[Payload | None]  # the clients' PMs
    replies: list[Reply]


def initial_network(source: Source, model: str = "linear", **options: Any) -> Flat:
    torch.manual_seed(0)
    return Flat(build(model, source.shape, source.num_classes, **options))


def federate(
    name: str,
    rounds: int,
    client: dict[str, Any],
    merge: dict[str, Any],
    state_root: Path,
    source: Source,
    clients: int,
    model: str = "linear",
    kind: type | None = None,
    **options: Any,
) -> Federated:
    """Deal the source's rows in equal runs to the clients, who all take part in every round.

    `kind` is another client than the method's own, `options` are the model's.
    """
    settings = settings_of(name).model_validate(
        {
            "experiment": "test",
            "strategy": name,
            "client": client,
            "merge": merge,
            "data": {"clients": clients},
            "model": {"name": model, "options": options},
        }
    )
    flat = initial_network(source, model, **options)
    architecture = Architecture(source.shape, source.num_classes, flat.slices)
    strategy = method(name).strategy(settings, architecture)
    payload = strategy.begin(flat.mean())
    state = {}
    parts = np.split(np.arange(len(source.y_train)), clients)
    states = [RecordDict() for _ in parts]
    for number in range(1, rounds + 1):
        replies = []
        own = []
        told = Instructions(
            round=number,
            learning_rate=settings.client.learning_rate,
            first=number == 1,
            last_merged=number - 1,
            last_saved=number - 1,
            total_examples=len(source.y_train),
        )
        for k, rows in enumerate(parts):
            partition = Partition(k, source, rows, rows)
            one = (kind or method(name).client)(settings, partition, states[k], state_root)
            reply = one.work(payload, told)
            replies.append(Reply(k, reply.num_examples, 0, reply.payload, reply.metrics))
            kept = one.memory(told).recall(number) if one.carried(settings) else {}
            own.append(recall_personal(kept))
        weights = strategy.weigh(replies, payload.posterior)
        merged = strategy.merge(
            Round(number, replies, weights, payload, clients, number == 1, state)
        )
        state = merged.state
        payload = Payload(merged.posterior, None, merged.extras or payload.extras)
    return Federated(payload.posterior, own, replies)
