"""What the compact wire takes: a part of `make bench`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np

from fedivon_app.clients.fedivon import FedIvonClient
from fedivon_app.core.codec import Payload
from fedivon_app.core.compact import Compact
from fedivon_app.core.compose import compose
from fedivon_app.core.flat import Flat
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.wire_settings import WireSettings
from fedivon_app.datasets.node_data import Partition
from fedivon_app.datasets.sources import load
from fedivon_app.methods import method, settings_of
from tests.bench_runs import random_pictures
from tests.contest import Run, contest


def first_payload(settings: AnySettings, flat: Flat) -> Payload:
    """Return what a client of such a run is sent in round 1."""
    strategy = method(settings.strategy).strategy(settings, Architecture(slices=flat.slices))
    return strategy.begin(flat.mean(), flat.buffers)


def coded_rounds(folder: Path, pictures: int, turns: int = 50) -> dict[str, float]:
    """Return what `fit` takes FedIvon's client over the compact and over the raw wire.

    It is lenet on pictures of CIFAR-10's size, 2 epochs with batches of 32. Over the compact wire
    it is sent a whole posterior that it does not hold yet.
    """
    source = load("npz", folder, path=random_pictures(folder, (32, 32, 3), pictures))
    rows = np.arange(pictures)
    rivals: dict[str, Run] = {}
    for wire in ("compact", "raw"):
        settings = compose(settings_of, "cifar10-fedivon", "fedivon", [f"wire.codec={wire}"])
        client = FedIvonClient(settings, Partition(0, source, rows, rows), state_root=folder)
        told = Instructions(round=1, learning_rate=settings.client.learning_rate)
        first = first_payload(settings, client.flat)
        fits = []
        for posterior in (first.posterior, replace(first.posterior, mean=-first.posterior.mean)):
            payload = Payload(posterior)
            arrays = client.codec.encode(payload)
            if isinstance(client.codec, Compact):
                broadcast = client.codec.broadcast(payload)
                told = replace(told, sent=broadcast.digest)
                arrays = broadcast.whole
            config = {**told.to_config(), "keys": list(arrays)}
            fits.append(partial(client.fit, list(arrays.values()), config))
        rivals[wire] = partial(_next, cycle(fits))
    return contest(rivals, turns)


def _next(runs: Iterator[Run]) -> None:
    next(runs)()


def codec_speed(size: int, whole: bool, turns: int = 5) -> float:
    """Return how many MB of float32 the compact codec encodes and decodes in a second.

    Means and precisions are counted; means move by a fraction of sigma, as in training.
    """
    rng = np.random.default_rng(0)
    precision = 5000 * np.exp(0.3 * rng.standard_normal(size))
    sent = Posterior(0.05 * rng.standard_normal(size), precision)
    moved = sent.mean + rng.laplace(0, 0.1, size) / np.sqrt(precision)
    reply = Payload(Posterior(moved, precision * np.exp(0.03 * rng.standard_normal(size))))
    reference = None if whole else Payload(sent)
    codec = Compact(WireSettings(codec="compact"), (size // 10, size - size // 10))
    both = {
        "encode": lambda: codec.encode(reply, reference),
        "decode": partial(codec.decode, codec.encode(reply, reference), reference),
    }
    return 8 * size / 1e6 / (sum(contest(both, turns).values()) / 1e3)
