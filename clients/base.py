"""PosteriorClient: what every method's client does, under Flower's NumPyClient interface.

A method says in `train` how a posterior becomes the client's own. What a client is told comes in as
one value (`Instructions`, and a `Task` made of them), what it learned goes out as one (`Learned`).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from flwr.app import RecordDict
from flwr.client import NumPyClient
from torch import Tensor

from fedivon_app.clients.place import Place
from fedivon_app.clients.poison import lies, poisoned
from fedivon_app.clients.private import account_of, pay, plan_of
from fedivon_app.clients.received import decoded
from fedivon_app.clients.roll_call import check_seen, properties
from fedivon_app.clients.scoring import tallies_of
from fedivon_app.clients.state import Memory, recall_personal, with_personal
from fedivon_app.clients.task import Carries, ClientReply, Learned, Task, seeded
from fedivon_app.core import client_scores
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.compact import codec_of
from fedivon_app.core.errors import Refused, SettingsError
from fedivon_app.core.files import default_state_root
from fedivon_app.core.frozen import frozen_digest
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.ledger import Account, Ledger
from fedivon_app.core.likelihood import likelihood_of
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.network import network, pick_device
from fedivon_app.core.privacy import Plan, PrivateSteps, check_hides_examples
from fedivon_app.core.settings import AnySettings, Settings
from fedivon_app.core.tally import Pooled
from fedivon_app.datasets.loading import classes, tensors
from fedivon_app.datasets.node_data import Partition

C = TypeVar("C", bound=ClientSettings)
M = TypeVar("M", bound=MergeSettings)


class PosteriorClient(NumPyClient, Generic[C, M]):
    """The client half of a method.

    A method overrides `train`. `settings_type` is the class of its options under `client` in the
    settings, and `carries` says what its clients carry from round to round. `coupled` are the names
    of what they keep that the server follows by itself, such as duals: it changes only in a round
    in which the client reports, for else the server would never hear of it. `predicts_numbers` says
    whether the method has a meaning where a number is predicted (task regression).
    """

    settings_type: ClassVar[type[ClientSettings]] = ClientSettings
    carries: ClassVar[Carries] = Carries.NOTHING
    coupled: ClassVar[frozenset[str]] = frozenset()
    predicts_numbers: ClassVar[bool] = True

    def __init__(
        self,
        settings: Settings[C, M],
        partition: Partition,
        state: RecordDict | None = None,
        state_root: Path | None = None,
        ledger: Ledger | None = None,
    ):
        self.settings = settings
        self.partition = partition
        self.ledger = ledger  # of the site; None: one of the run's own
        self.place = Place(
            state=RecordDict() if state is None else state,
            root=state_root or default_state_root(),
            partition=partition.number,
            most=settings.wire.remembered + 1,
        )
        self.device = pick_device(settings.client.device)
        self.likelihood = likelihood_of(settings)
        if self.likelihood.is_number and not self.predicts_numbers:
            raise SettingsError(
                f"strategy {settings.strategy} is for classes: task regression is not one for it"
            )
        self.flat = network(
            settings.model,
            partition.source.shape,
            self.likelihood.num_outputs(classes(settings.data, partition.source)),
            self.device,
        )
        self.codec = codec_of(settings.wire, self.flat.slices.values())
        if settings.privacy.is_private:
            check_hides_examples(self.flat)

    @abstractmethod
    def train(self, start: Payload, task: Task) -> Learned:
        """Return what the client learns from the server's `start`, which the network holds."""

    @classmethod
    def carried(cls, settings: AnySettings) -> Carries:
        """Return what the method's clients carry from round to round under these settings."""
        own = Carries.MODEL if settings.evaluation.personal else Carries.NOTHING
        return cls.carries | own

    # One round of training, and scores.

    def work(self, start: Payload, told: Instructions) -> ClientReply:
        """Train for a round, and keep what is to be kept."""
        began = time.perf_counter()
        memory = self.memory(told)
        carried = self.carried(self.settings)
        kept = memory.recall(told.last_merged) if Carries.TRAINING in carried else {}
        plan = self.plan(told) if self.settings.privacy.is_private else None
        spent = 0.0 if plan is None else pay(self.settings, plan, self.account(told), told)
        task = self.task(told, kept, plan)
        self.begin_at(start)
        learned = self.train(start, task)
        buffers = self.flat.buffers if plan is None else start.buffers
        extras = start.extras if learned.extras is None else learned.extras
        coded = None
        if told.report:
            codec = self.codec.seeded(self.settings.seed, told.round, self.partition.number)
            coded = codec.coded(Payload(learned.posterior, buffers, extras), start)
        if carried:
            lasting = learned.lasting(kept, coded, self.coupled)
            if Carries.MODEL in carried:
                own = learned.personal or Payload(learned.posterior, buffers)
                lasting = with_personal(lasting, own)
            needed = {told.last_merged, told.last_saved}
            memory.keep(told.round, lasting, needed=needed)
        metrics = {"loss": task.losses.mean, **learned.metrics}
        metrics["seconds"] = time.perf_counter() - began
        return ClientReply(
            coded=coded,
            num_examples=task.num_examples,
            metrics=metrics if plan is None else {"epsilon": spent, "noise": plan.round_noise},
        )

    def begin_at(self, start: Payload) -> None:
        """Load what was sent into the network, ready to be trained."""
        self.flat.load(start.posterior.mean)
        if start.buffers is not None:
            self.flat.load_buffers(start.buffers)
        self.flat.module.train()

    def score(self, received: Payload, told: Instructions) -> dict[str, dict[str, Pooled]]:
        """Return tallies of the received GM and the client's own PM on its test part.

        They are by whose model (`gm`, `pm`) and way of predicting (`mean`, `mc`).
        """
        models = {"gm": received} if told.score_gm else {}
        if Carries.MODEL in self.carried(self.settings):
            own = recall_personal(self.memory(told).recall(told.last_merged))
            if own is not None:
                models["pm"] = own
        return self.tallies(models)

    def tallies(self, models: Mapping[str, Payload]) -> dict[str, dict[str, Pooled]]:
        """Return tallies of these models on the client's test part, by the ways of predicting."""
        images, labels = self.examples("test", self.partition.test)
        scored = partial(
            tallies_of, flat=self.flat, likelihood=self.likelihood, settings=self.settings
        )
        return {who: scored(model, images, labels) for who, model in models.items()}

    def memory(self, told: Instructions) -> Memory:
        """Return what this client has kept in this run, and where it keeps more."""
        return self.place.memory(told)

    def task(
        self,
        told: Instructions,
        memory: Mapping[str, np.ndarray] | None = None,
        plan: Plan | None = None,
    ) -> Task:
        """Return the round's data and randomness, by the seed, the round and the partition.

        With a plan for a private run, which examples are taken and their noise follow from nothing.
        """
        generator = seeded([self.settings.seed, told.round, self.partition.number], self.device)
        images, labels = self.examples("train", self.partition.train)
        if lies(self.settings, self.partition.number):
            count = classes(self.settings.data, self.partition.source)
            images, labels = poisoned(self.settings.attack, images, labels, count)
        by_layers = self.settings.model.factory is None
        private = None if plan is None else PrivateSteps(plan, by_layers=by_layers)
        return Task(
            inputs=images,
            labels=labels,
            epochs=self.settings.client.epochs,
            batch_size=self.settings.client.batch_size,
            learning_rate=told.learning_rate,
            generator=generator,
            server_round=told.round,
            first=told.first,
            total_examples=told.total_examples,
            memory=memory or {},
            likelihood=self.likelihood,
            private=private,
        )

    # The privacy of the client's examples.

    def account(self, told: Instructions) -> Account:
        """Return what has been spent of the privacy of the client's examples.

        Simulated clients, which have no ledger of their own, keep one of the run.
        """
        ledger = self.ledger or Ledger(self.memory(told).folder / "ledger")
        return account_of(self.partition, ledger)

    def plan(self, told: Instructions) -> Plan:
        """Return what the client does in a private run."""
        return plan_of(self.settings, self.partition, self.account(told), told.run)

    def examples(self, part: Literal["train", "test"], rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return rows of a part of the client's source as tensors, inputs and labels."""
        source = self.partition.source
        x = source.x_train if part == "train" else source.x_test
        y = source.y_train if part == "train" else source.y_test
        data = self.settings.data
        return tensors(x[rows], y[rows], data.scaling, self.device, data.standard)

    # Flower's interface.

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return what the roll call asks of the client's data.

        A client that is to keep things in the run's folder, and does not see it, cannot work.
        """
        place = config.get("client-state")
        keeps = self.carried(self.settings) or self.settings.wire.codec != "raw"
        if place and keeps:
            check_seen(place)
        private = self.settings.privacy.is_private
        plan = self.plan(Instructions.from_config(config)) if private else None
        told = properties(self.settings, self.partition, plan)
        return told | {"frozen": frozen_digest(self.flat.module)}

    def fit(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Train for a round; `config` has the instructions, and under `keys` the arrays' names."""
        told = Instructions.from_config(config)
        start = self._decoded(parameters, config, told)
        self.place.received(told).keep(told.sent, start)
        reply = self.work(start, told)
        arrays: list[np.ndarray] = []
        if reply.coded is not None:
            arrays = [reply.coded.arrays[key] for key in config["keys"]]
        return arrays, reply.num_examples, dict(reply.metrics)

    def evaluate(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[float, int, dict[str, Any]]:
        """Score the models that the client has, as sums that can be pooled."""
        if self.settings.privacy.is_private:
            raise Refused("a private client does not score models on its test examples")
        told = Instructions.from_config(config)
        start = self._decoded(parameters, config, told)
        tallies = self.score(start, told)
        loss = next((ways["mean"].nll for ways in tallies.values()), 0.0)
        return loss, len(self.partition.test), client_scores.to_metrics(tallies)

    def _decoded(
        self, parameters: list[np.ndarray], config: Mapping[str, Any], told: Instructions
    ) -> Payload:
        arrays = dict(zip(config["keys"], parameters, strict=True))
        return decoded(arrays, told, self.codec, self.place.received(told))
