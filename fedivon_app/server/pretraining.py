"""Training of the global model by the server, before round 1, on a fraction of the data.

It is that of Fischer et al. 2024, section 3.6.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from fedivon_app.clients.base import Carries
from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.metrics import classification
from fedivon_app.core.predict import predict_point
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.node_data import Partition
from fedivon_app.datasets.sources import load
from fedivon_app.methods import method
from fedivon_app.server.setup import num_clients_of

log = logging.getLogger("fedivon")

MASKS = 8  # of a network with dropout, averaged over for the validation
STREAM = 0x7072  # of the seed: which examples, and which of them validate


@dataclass(frozen=True, eq=False)
class OwnExamples:
    """The server's own examples, as rows of a source's training part."""

    source: Source
    train: np.ndarray
    validation: np.ndarray


def pretrain(settings: AnySettings, start: Payload, flat: Flat) -> Payload:
    """Train the method's own client, an epoch at a time, on `pretraining.fraction` of the examples.

    After each epoch the mean is scored on a share of these examples that it is not trained on; the
    best one counts, and `patience` epochs without a better accuracy end it.
    """
    plan = settings.pretraining
    own = examples(settings)
    kind = method(settings.strategy).client
    if Carries.TRAINING in kind.carried(settings):
        raise SettingsError(
            "pretraining is for methods whose clients keep nothing from round to round, "
            f"and those of {settings.strategy} do"
        )
    one_epoch = settings.client.model_copy(update={"epochs": 1})
    client = kind(
        settings.model_copy(update={"client": one_epoch}),
        Partition(number=0, source=own.source, train=own.train, test=own.validation),
    )
    images, labels = client.examples("train", own.validation)
    payload = start
    best = start
    best_accuracy = -1.0
    waited = 0
    for epoch in range(1, plan.epochs + 1):
        told = Instructions(round=STREAM + epoch, learning_rate=settings.client.learning_rate)
        reply = client.work(payload, told)
        assert reply.payload is not None  # it was asked to report
        payload = reply.payload
        if fault := payload.fault():
            raise SettingsError(
                f"pretraining diverged in epoch {epoch}: {fault}; "
                "try a smaller client.learning_rate"
            )
        probabilities = predict_point(
            flat, payload.posterior, images, MASKS, settings.seed, buffers=payload.buffers
        )
        accuracy = classification(probabilities, labels.cpu().numpy())["accuracy"]
        waited += 1
        if accuracy > best_accuracy:
            best = payload
            best_accuracy = accuracy
            waited = 0
        log.info(
            "pretraining epoch %d/%d  train loss %.4f  validation accuracy %.2f %%, best %.2f %%",
            epoch,
            plan.epochs,
            reply.metrics["loss"],
            100 * accuracy,
            100 * best_accuracy,
        )
        if waited >= plan.patience:
            break
    return best


def examples(settings: AnySettings) -> OwnExamples:
    """Return the server's own examples: those to train on and those to validate by.

    They are drawn from what the clients have (a common source), or from the server's own file
    (source `nodes`).
    """
    data = settings.data
    plan = settings.pretraining
    if data.source == "nodes":
        if not data.path:
            raise SettingsError(
                "pretraining needs data on the server: with data.source `nodes`, give data.path"
            )
        source = load("npz", data.root, path=data.path, num_classes=data.num_classes)
        pool = np.arange(len(source.y_train))
    else:
        divided = division(data, num_clients_of(settings), settings.seed)
        source = divided.source
        pool = np.setdiff1d(np.arange(len(source.y_train)), divided.split.holdout)
    count = int(plan.fraction * len(pool))
    validating = int(plan.validation * count)
    if validating < 1 or count - validating < 1:
        raise SettingsError(
            f"pretraining.fraction {plan.fraction:g} of {len(pool)} examples is {count}: "
            "too few to train and validate"
        )
    rows = np.random.default_rng([settings.seed, STREAM]).permutation(pool)[:count]
    return OwnExamples(source, np.sort(rows[validating:]), np.sort(rows[:validating]))
