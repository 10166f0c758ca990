"""A whole federation in one process: real clients and a real merge, without Flower's messages."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import RecordDict

from fedivon_app.clients.state import recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.models import build
from fedivon_app.core.posterior import Posterior
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import Partition
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.replies import Reply


class Federated(NamedTuple):
    """What there is after the last round."""

    server: Posterior
    personal: list[Payload | None]  # the clients' PMs
    replies: list[Reply]


def initial_weights(source: Source, model: str = "linear", **options: Any) -> np.ndarray:
    torch.manual_seed(0)
    return Flat(build(model, source.shape, source.num_classes, **options)).mean()


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
    """The source's rows are dealt in equal runs to the clients, who all take part in every round.

    `kind` is another client than the method's own, `options` are the model's.
    """
    values = {
        "experiment": "test",
        "strategy": name,
        "client": client,
        "merge": merge,
        "data": {"clients": clients},
    }
    settings = settings_of(name).model_validate(
        values | {"model": {"name": model, "options": options}}
    )
    strategy = method(name).strategy(settings, source.shape, source.num_classes)
    payload = strategy.begin(initial_weights(source, model, **options))
    parts = np.split(np.arange(len(source.y_train)), clients)
    states = [RecordDict() for _ in parts]
    for number in range(1, rounds + 1):
        replies = []
        own = []
        for k, rows in enumerate(parts):
            one = (kind or method(name).client)(
                settings, Partition(k, source, rows, rows), states[k], state_root
            )
            arrays = one.codec.encode(payload)
            config = {
                "keys": list(arrays),
                "round": number,
                "learning-rate": settings.client.learning_rate,
            }
            config |= {
                "last-merged": number - 1,
                "total-examples": len(source.y_train),
                "last-saved": number - 1,
            }
            out, size, metrics = one.fit(list(arrays.values()), config)
            replies.append(
                Reply(k, size, 0, one.codec.decode(dict(zip(arrays, out, strict=True))), metrics)
            )
            own.append(recall_personal(one.memory(config).recall(number)) if one.keeps else None)
        strategy.record = {"round": number}
        weights = strategy.weights(replies, payload.posterior)
        merged = strategy.merge(replies, weights, payload.posterior)
        payload = Payload(merged, None, strategy.merge_extras(replies, payload))
    return Federated(payload.posterior, own, replies)
