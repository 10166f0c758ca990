"""Training of the global model by the server, before round 1, on a fraction of the data (Fischer et al. 2024, 3.6)."""

from __future__ import annotations

import logging

import numpy as np

from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.flat import Flat
from fedivon_app.core.metrics import classification
from fedivon_app.core.predict import predict_point
from fedivon_app.core.settings import Settings, SettingsError
from fedivon_app.datasets.loading import Partition, division
from fedivon_app.datasets.sources import Source, load
from fedivon_app.methods import method

log = logging.getLogger("fedivon")

MASKS = 8  # of a network with dropout, averaged over for the validation
STREAM = 0x7072  # of the seed: which examples, and which of them validate


def pretrain(settings: Settings, start: Payload, flat: Flat) -> Payload:
    """The method's own client, an epoch at a time, on `pretraining.fraction` of the training examples.

    After each epoch the mean is scored on a share of these examples that it is not trained on; the best one counts, and
    `patience` epochs without a better accuracy end it.
    """
    plan = settings.pretraining
    source, train, validation = examples(settings)
    client_settings = settings.client.model_copy(update={"epochs": 1})
    client = method(settings.strategy).client(
        settings.model_copy(update={"client": client_settings}),
        Partition(0, source, train, validation),
    )
    if client.goes_on(client.settings):
        raise SettingsError(
            "pretraining is for methods whose clients keep nothing from round to round, "
            f"and those of {settings.strategy} do"
        )
    images, labels = client.examples("train", validation)
    codec = Raw()
    payload = start
    best = start
    best_accuracy = -1.0
    waited = 0
    for epoch in range(1, plan.epochs + 1):
        arrays = codec.encode(payload)
        config = {
            "keys": list(arrays),
            "round": STREAM + epoch,
            "learning-rate": settings.client.learning_rate,
        }
        trained, _, metrics = client.fit(list(arrays.values()), config)
        payload = codec.decode(dict(zip(arrays, trained, strict=True)), payload)
        if fault := payload.fault():
            raise SettingsError(
                f"pretraining diverged in epoch {epoch}: {fault}; try a smaller client.learning_rate"
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
        score = f"validation accuracy {100 * accuracy:.2f} %, best {100 * best_accuracy:.2f} %"
        log.info(
            "pretraining epoch %d/%d  train loss %.4f  %s",
            epoch,
            plan.epochs,
            metrics["loss"],
            score,
        )
        client.loss_sum = client.steps = 0
        if waited >= plan.patience:
            break
    return best


def examples(settings: Settings) -> tuple[Source, np.ndarray, np.ndarray]:
    """The server's own examples: those to train on and those to validate by, as rows of the source's training part.

    They are drawn from what the clients have (a common source), or from the server's own file (source `nodes`).
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
        source, split = division(data, data.clients, settings.seed)
        pool = np.setdiff1d(np.arange(len(source.y_train)), split.holdout)
    count = int(plan.fraction * len(pool))
    validating = int(plan.validation * count)
    if validating < 1 or count - validating < 1:
        raise SettingsError(
            f"pretraining.fraction {plan.fraction:g} of {len(pool)} examples is {count}: too few to train and validate"
        )
    rows = np.random.default_rng([settings.seed, STREAM]).permutation(pool)[:count]
    return source, np.sort(rows[validating:]), np.sort(rows[:validating])
