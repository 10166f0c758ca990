"""Membership inference on a run: can the loss tell who was trained on?

    python tools/membership.py RUN [--epochs N]

The attack says of an example that it was a member if the model's loss on it is small (Yeom et al.
2018). Members are training examples and the others test examples, as many of each. The advantage
is the largest difference between the shares of members and of others that a threshold on the loss
takes for members: 0 is guessing, 1 is certainty. Two models are attacked: the global one at the end
of the run, and the reply of client 0, trained from it for another round, or for N epochs.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.metrics import auroc
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import division, tensors
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.methods import method
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained


@torch.no_grad()
def losses(flat: Flat, payload: Payload, x: np.ndarray, y: np.ndarray, scaling: str) -> np.ndarray:
    """Return the loss of each example at the mean of a posterior."""
    flat.load(payload.posterior.mean)
    flat.load_buffers(payload.buffers)
    flat.module.eval()
    inputs, labels = tensors(x, y, scaling, flat.vector.device)
    return cross_entropy(flat.module(inputs), labels, reduction="none").cpu().numpy()


def advantage(members: np.ndarray, others: np.ndarray) -> float:
    """Return max over thresholds of (share of members) - (share of others) with a smaller loss."""
    thresholds = np.sort(np.concatenate([members, others]))
    shares = [
        np.searchsorted(np.sort(one), thresholds, side="right") / len(one)
        for one in (members, others)
    ]
    return float(np.max(shares[0] - shares[1]))


def reply_of(settings: AnySettings, payload: Payload, epochs: int) -> Payload:
    """Return what client 0 sends after one more round, or so many epochs, from a payload."""
    client = settings.client.model_copy(update={"epochs": epochs})
    alone = settings.model_copy(update={"client": client, "rounds": 1, "clients_per_round": None})
    with tempfile.TemporaryDirectory() as place:
        told = Instructions(
            round=settings.rounds + 1,
            learning_rate=settings.client.rate_in(1, settings.rounds),
            client_state=place,
            total_examples=1,
        )
        one: Any = method(settings.strategy).client(alone, partition_of(alone, {"partition-id": 0}))
        reply = one.work(payload, told).payload
    assert isinstance(reply, Payload)
    return reply


def main() -> None:
    """Attack both models of a run, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    settings = Run.open(options.run).settings
    trained = Trained.open(options.run)
    divided = division(settings.data, settings.data.clients, settings.seed)
    source = divided.source
    scaling = settings.data.scaling
    reply = reply_of(settings, trained.payload, options.epochs)
    attacked = {
        "global model": (trained.payload, np.concatenate(divided.split.train)),
        f"reply of client 0, {options.epochs} epochs": (reply, divided.split.train[0]),
    }
    rng = np.random.default_rng(0)
    for name, (payload, rows) in attacked.items():
        count = min(len(rows), len(source.y_test))
        inside = rng.choice(rows, count, replace=False)
        outside = rng.choice(len(source.y_test), count, replace=False)
        members = losses(
            trained.flat, payload, source.x_train[inside], source.y_train[inside], scaling
        )
        others = losses(
            trained.flat, payload, source.x_test[outside], source.y_test[outside], scaling
        )
        print(
            f"{name}: advantage {advantage(members, others):.3f}, "
            f"AUROC {auroc(members, others):.3f}, of {count} members and as many others"
        )


if __name__ == "__main__":
    main()
