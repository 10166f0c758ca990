"""Clients with personal models, called as Flower calls them, and two that contradict each other."""

import numpy as np
import torch

from fedivon_app.clients.state import keep_personal, recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.models import build
from fedivon_app.core.compose import compose
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import partition_of
from fedivon_app.methods import method, settings_of
from fedivon_app.server_app import prepare

EACH = 40
BATCH_NORM = ["model.name=resnet", "model.options={channels: [4], blocks: 1}"]
SMALL = ["model.options={sizes: [12, 8], activation: tanh}"]


def conflict() -> Source:
    """Two clients with the same inputs and opposite labels: whatever one model says is right for half of them."""
    x = np.random.default_rng(0).standard_normal((EACH, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    return Source("conflict", np.r_[x, x], np.r_[y, 1 - y], np.r_[x, x], np.r_[y, 1 - y], 2)


SOURCE = conflict()


def first_payload(settings):
    """What the server sends in round 1."""
    flat, (shape, classes, *_) = prepare(settings)
    return (
        method(settings.strategy)
        .strategy(settings, shape, classes)
        .begin(flat.mean(), flat.buffers)
    )


def client_of(name, folder, *words):
    """Of partition 3 of the digits, and what it is sent in round 1."""
    settings = compose(settings_of, "demo", name, words)
    one = method(name).client(
        settings, partition_of(settings, {"partition-id": 3, "num-partitions": 20}), None, folder
    )
    return one, first_payload(settings)


def config_of(one, number=1):
    keys = ["mean", *(["buffers"] if one.flat.buffers is not None else [])]
    rate = one.settings.client.learning_rate
    return {"keys": keys, "round": number, "learning-rate": rate, "last-merged": number - 1}


def fit(one, start, number=1):
    """The client's reply and its PM after a round."""
    config = config_of(one, number)
    arrays = one.codec.encode(start)
    out = one.fit(list(arrays.values()), config)[0]
    own = recall_personal(one.memory(config).recall(number))
    return one.codec.decode(dict(zip(arrays, out, strict=True)), start), own


def remember(one, own, number=1):
    """Has the client keep this PM as that of the round."""
    memory = {}
    keep_personal(memory, own)
    one.memory(config_of(one)).keep(number, memory)


def accuracy(own: Payload, k: int, **options) -> float:
    flat = Flat(build("mlp", SOURCE.shape, SOURCE.num_classes, **options))
    flat.load(own.posterior.mean)
    rows = slice(k * EACH, (k + 1) * EACH)
    found = flat.module(torch.from_numpy(SOURCE.x_train[rows])).argmax(1).numpy()
    return float((found == SOURCE.y_train[rows]).mean())


QUICK = {"optimizer": "sgd", "learning_rate": 0.5, "epochs": 20, "batch_size": EACH}
