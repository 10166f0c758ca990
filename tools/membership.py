"""Membership inference on a run: can the loss tell who was trained on?

    python tools/membership.py RUN [--epochs N] [--sites K]

The attack says of an example that it was a member if the model's loss on it is small (Yeom et al.
2018). Members are training examples and the others test examples, as many of each. The advantage
is the largest difference between the shares of members and of others that a threshold on the loss
takes for members: 0 is guessing, 1 is certainty. Three models are attacked: the global one at the
end of the run; the reply of client 0, trained from it for another round, or for N epochs; and the
merge of the replies of clients 0 to K - 1 to that round, which is all that a server sees under
secure aggregation. The members of the last two are examples of client 0.

Who sees them knows what the round began with, too. So they are attacked a second time by how much
the loss of an example fell in the round: that an example is hard for every model then does not
count. A private client spends all of its epsilon on the round that is attacked.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fedivon_app.clients.task import ClientReply
from fedivon_app.core.codec import Payload
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.metrics import auroc
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import division, tensors
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.methods import method
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained, checkpoint_of
from fedivon_app.strategies.aggregation import aggregate


@torch.no_grad()
def losses(trained: Trained, payload: Payload, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the loss of each example at the mean of a posterior."""
    flat, data = trained.flat, trained.settings.data
    flat.load(payload.posterior.mean)
    flat.load_buffers(payload.buffers)
    flat.module.eval()
    inputs, labels = tensors(x, y, data.scaling, flat.vector.device, data.standard)
    return cross_entropy(flat.module(inputs), labels, reduction="none").cpu().numpy()


def advantage(members: np.ndarray, others: np.ndarray) -> float:
    """Return max over thresholds of (share of members) - (share of others) with a smaller loss."""
    thresholds = np.sort(np.concatenate([members, others]))
    shares = [
        np.searchsorted(np.sort(one), thresholds, side="right") / len(one)
        for one in (members, others)
    ]
    return float(np.max(shares[0] - shares[1]))


def replies_of(
    settings: AnySettings, payload: Payload, *, epochs: int, count: int
) -> list[ClientReply]:
    """Return what clients 0, 1, ... send after one more round of so many epochs from a payload."""
    client = settings.client.model_copy(update={"epochs": epochs})
    alone = settings.model_copy(update={"client": client, "rounds": 1, "clients_per_round": None})
    replies = []
    with tempfile.TemporaryDirectory() as place:
        told = Instructions(
            round=settings.rounds + 1,
            learning_rate=settings.client.rate_in(1, settings.rounds),
            client_state=place,
            total_examples=1,
        )
        for number in range(count):
            partition = partition_of(alone, {"partition-id": number})
            one: Any = method(settings.strategy).client(alone, partition)
            replies.append(one.work(payload, told))
    return replies


def payload_of(reply: ClientReply) -> Payload:
    """Return what a client sent."""
    payload = reply.payload
    assert payload is not None
    return payload


def merged(settings: AnySettings, replies: Sequence[ClientReply], previous: Payload) -> Payload:
    """Return what the server has after a round: the merge by the run's rule, weighted by size."""
    sizes = np.array([reply.num_examples for reply in replies], np.float64)
    posteriors = [payload_of(reply).posterior for reply in replies]
    rule = settings.merge.rule
    return Payload(
        aggregate(rule, posteriors, sizes / sizes.sum(), previous.posterior), previous.buffers
    )


def main() -> None:
    """Attack the models of a run, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--sites", type=int, default=10)
    options = parser.parse_args()
    run = Run.open(options.run)
    trained = Trained.open(run)
    settings = trained.settings  # with what inputs were standardised by
    final = checkpoint_of(run, "last").payload  # as clients get it
    divided = division(settings.data, settings.data.clients, settings.seed)
    source = divided.source
    replies = replies_of(settings, final, epochs=options.epochs, count=options.sites)
    own = divided.split.train[0]
    after = f"{options.epochs} epochs"
    attacked = {
        "global model": (final, np.concatenate(divided.split.train), False),
        f"reply of client 0, {after}": (payload_of(replies[0]), own, True),
        f"sum of {options.sites} replies, {after}": (
            merged(settings, replies, final),
            own,
            True,
        ),
    }
    rng = np.random.default_rng(0)
    for name, (payload, rows, is_later) in attacked.items():
        count = min(len(rows), len(source.y_test))
        inside = rng.choice(rows, count, replace=False)
        outside = rng.choice(len(source.y_test), count, replace=False)
        examples = [
            (source.x_train[inside], source.y_train[inside]),
            (source.x_test[outside], source.y_test[outside]),
        ]
        now = [losses(trained, payload, x, y) for x, y in examples]
        told = {"loss": now}
        if is_later:
            before = [losses(trained, final, x, y) for x, y in examples]
            told["fall of the loss"] = [new - old for new, old in zip(now, before, strict=True)]
        for by, (members, others) in told.items():
            print(
                f"{name}, by the {by}: advantage {advantage(members, others):.3f}, "
                f"AUROC {auroc(members, others):.3f}, of {count} members and as many others"
            )


if __name__ == "__main__":
    main()
