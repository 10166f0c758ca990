"""Training of the global model by the server, before round 1, on a fraction of the data.

It is that of Fischer et al. 2024, section 3.6.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.task import Carries, LossMeter, SoFar
from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.metrics import classification
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import point_moments
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.streams import streams_kept
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import division, own_source
from fedivon_app.datasets.node_data import Partition
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


class Watch:
    """Looks at one training after each of its epochs, keeps the best payload, and may end it.

    `best` is that with the highest accuracy of the mean on the examples that validate; before the
    first epoch there is none.
    """

    def __init__(
        self,
        settings: AnySettings,
        start: Payload,
        client: PosteriorClient[Any, Any],
        losses: LossMeter,
        flat: Flat,
    ):
        self.settings = settings
        self.start = start
        self.client = client
        self.losses = losses
        self.flat = flat
        self.seen = LossMeter()
        self.epoch = 0
        self.best: Payload | None = None
        self.best_epoch = 0
        self.best_accuracy = -np.inf
        # the source's training part has these examples too
        self.images, self.labels = client.examples("train", client.partition.test)

    def after_epoch(self, so_far: SoFar | None) -> bool:
        """Score what was learned so far, and return whether training goes on."""
        self.epoch += 1
        # Looking on takes none of the random numbers that training would have had.
        with streams_kept(self.client.device):
            payload = self.payload(so_far)
            accuracy = self.accuracy(payload)
        if accuracy > self.best_accuracy:
            self.best = payload
            self.best_epoch = self.epoch
            self.best_accuracy = accuracy
        plan = self.settings.pretraining
        log.info(
            "pretraining epoch %d/%d  train loss %.4f  validation accuracy %.2f %%, best %.2f %%",
            self.epoch,
            plan.epochs,
            self.epoch_loss(),
            100 * accuracy,
            100 * self.best_accuracy,
        )
        return self.epoch - self.best_epoch < plan.patience

    def payload(self, so_far: SoFar | None) -> Payload:
        """Return what was learned so far as the server would send it."""
        if so_far is not None:
            posterior = so_far()
        elif self.start.posterior.precision is None:
            posterior = Posterior(self.client.flat.mean())
        else:
            raise SettingsError(
                f"pretraining looks at the posterior after every epoch, and the clients of "
                f"{self.settings.strategy} do not show it: they have to give `task.batches` a "
                "function that returns it"
            )
        payload = Payload(posterior, self.client.flat.buffers, self.start.extras)
        if fault := payload.fault():
            raise SettingsError(
                f"pretraining diverged in epoch {self.epoch}: {fault}; "
                "try a smaller client.learning_rate"
            )
        return payload

    def accuracy(self, payload: Payload) -> float:
        """Return the accuracy of the mean on the examples that validate.

        Where a number is predicted, it is the share of its variance that the mean explains.
        """
        moments = point_moments(
            self.flat,
            payload.posterior,
            self.images,
            MASKS,
            self.settings.seed,
            buffers=payload.buffers,
            likelihood=self.client.likelihood,
        )
        truth = self.labels.cpu().numpy()
        if self.client.likelihood.is_number:
            return float(1 - np.square(truth - moments.scored[:, 0]).mean() / truth.var())
        return classification(moments.as_float32().mean, truth)["accuracy"]

    def epoch_loss(self) -> float:
        """Return the mean loss since the epoch before."""
        own = LossMeter(
            total=self.losses.total - self.seen.total, count=self.losses.count - self.seen.count
        )
        self.seen = replace(self.losses)
        return own.mean


def pretrain(settings: AnySettings, start: Payload, flat: Flat) -> Payload:
    """Train the method's own client on `pretraining.fraction` of the examples, and return the best.

    It is one training from `start`, with one optimizer and one prior. After each epoch the mean is
    scored on a share of these examples that it is not trained on; the best one counts, and
    `patience` epochs without a better accuracy end it.
    """
    own = examples(settings)
    kind = method(settings.strategy).client
    if Carries.TRAINING in kind.carried(settings):
        raise SettingsError(
            "pretraining is for methods whose clients keep nothing from round to round, "
            f"and those of {settings.strategy} do"
        )
    alone = settings.client.before_round_1(settings.pretraining.epochs)
    client = kind(
        settings.model_copy(update={"client": alone}),
        Partition(number=0, source=own.source, train=own.train, test=own.validation),
    )
    told = Instructions(round=STREAM + 1, learning_rate=settings.client.learning_rate)
    task = client.task(told)
    watch = Watch(settings, start, client=client, losses=task.losses, flat=flat)
    client.begin_at(start)
    client.train(start, replace(task, after_epoch=watch.after_epoch))
    if watch.best is None:
        raise SettingsError(
            f"pretraining counts epochs by `task.batches`, and the clients of {settings.strategy} "
            "train without it"
        )
    return watch.best


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
        source = own_source(settings, data.path)
        pool = np.arange(len(source.y_train))
    else:
        divided = division(data, num_clients_of(settings), settings.seed, settings.task)
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
