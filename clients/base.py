"""PosteriorClient: what every method's client does, under Flower's NumPyClient interface.

A method says in `train` how a posterior becomes the client's own. What a client is told comes in as
one value (`Instructions`, and a `Task` made of them), what it learned goes out as one (`Learned`).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import partial
from math import ceil
from pathlib import Path
from platform import node
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch
from flwr.app import RecordDict
from flwr.client import NumPyClient
from torch import Tensor

from fedivon_app.clients.poison import claimed_size, poisoned
from fedivon_app.clients.received import Received, decoded
from fedivon_app.clients.state import Memory, recall_personal, with_personal
from fedivon_app.core import client_scores
from fedivon_app.core.codec import Coded, Payload
from fedivon_app.core.compact import codec_of
from fedivon_app.core.conformal import SETS, SETS_SUMS
from fedivon_app.core.errors import Refused, RunError, SettingsError
from fedivon_app.core.files import default_state_root
from fedivon_app.core.flat import Flat
from fedivon_app.core.frozen import frozen_digest
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.ledger import Account, Ledger, Steps, digest_of
from fedivon_app.core.likelihood import CLASSES, Likelihood, likelihood_of
from fedivon_app.core.network import network, pick_device
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import point_moments, predict_moments
from fedivon_app.core.privacy import Plan, PrivateSteps, check_hides_examples, planned_rounds
from fedivon_app.core.scores import chosen_scores
from fedivon_app.core.settings import AnySettings, ClientSettings, MergeSettings, Settings
from fedivon_app.core.standardise import ColumnSums
from fedivon_app.core.tally import Pooled
from fedivon_app.core.transfer import sent
from fedivon_app.datasets.loading import classes, tensors
from fedivon_app.datasets.node_data import Partition

C = TypeVar("C", bound=ClientSettings)
M = TypeVar("M", bound=MergeSettings)
SoFar = Callable[[], Posterior]  # returns what training has come to


class Carries(Flag):
    """What a client carries from one round of a run to the next."""

    NOTHING = 0
    MODEL = auto()  # a personal model, which is scored beside the global one
    TRAINING = auto()  # what later rounds build on, so that each of its rounds counts


@dataclass
class LossMeter:
    """The mean of the training losses that were computed."""

    total: Tensor | float = 0.0
    count: int = 0

    def add(self, loss: Tensor | float) -> None:
        """Count one minibatch's loss."""
        self.total = self.total + (loss.detach() if isinstance(loss, Tensor) else loss)
        self.count += 1

    def pass_over(self) -> None:
        """Count one minibatch whose loss nobody is to see."""
        self.count += 1

    @property
    def mean(self) -> float:
        """Return the mean; 0 where there was none."""
        return float(self.total) / max(self.count, 1)


@dataclass(frozen=True)
class Task:
    """One round of local training: the data in memory, the rate, and the order of the examples.

    `first` tells that nothing has been merged yet. `total_examples` are those of all clients, and
    `memory` is what this one kept. Losses are noted as they are computed. Who looks on does so by
    `after_epoch`: it is called with what the client gave to `batches`, and returns whether training
    goes on. In a private run `private` draws the minibatches, and makes their gradients.
    """

    inputs: Tensor
    labels: Tensor
    epochs: int
    batch_size: int
    learning_rate: float
    generator: torch.Generator
    server_round: int = 1
    first: bool = False
    total_examples: int = 0
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    losses: LossMeter = field(default_factory=LossMeter)
    likelihood: Likelihood = CLASSES
    after_epoch: Callable[[SoFar | None], bool] | None = None
    private: PrivateSteps | None = None

    @property
    def num_examples(self) -> int:
        """Return how many examples there are, as far as anybody may know."""
        return len(self.labels) if self.private is None else self.private.plan.size

    @property
    def steps(self) -> int:
        """Return how many minibatches there are."""
        if self.private is not None:
            return self.private.plan.steps
        return self.epochs * ceil(len(self.labels) / self.batch_size)

    def batches(self, so_far: SoFar | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every example once an epoch, shuffled, in minibatches.

        In a private run each minibatch is drawn by itself, and may be empty. `so_far` returns the
        posterior that training has come to, for those who look on. A client whose posterior is the
        point that the network holds need not give it.
        """
        for _ in range(self.epochs):
            yield from self._epoch()
            if self.after_epoch is not None and not self.after_epoch(so_far):
                return

    def _epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.private is not None:
            yield from self.private.batches(self.inputs, self.labels)
            return
        order = torch.randperm(len(self.labels), generator=self.generator)
        for rows in sent(order, self.labels.device).split(self.batch_size):
            yield self.inputs[rows], self.labels[rows]

    def backward(self, flat: Flat, inputs: Tensor, labels: Tensor) -> None:
        """Add the gradient of a minibatch's mean loss to those of the network's parameters.

        In a private run it is clipped and noisy, and all that is known of the minibatch.
        """
        if self.private is None:
            self.loss(flat.module(inputs), labels).backward()
        else:
            self.private.backward(flat, inputs, labels)
            self.losses.pass_over()

    @property
    def gradient_noise(self) -> float:
        """Return the standard deviation of the noise in each coordinate of a gradient."""
        return 0.0 if self.private is None else self.private.plan.gradient_noise

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a minibatch, cross-entropy where classes are learned; note it."""
        loss = self.likelihood.loss(logits, labels)
        self.losses.add(loss)
        return loss

    @property
    def personal(self) -> Payload | None:
        """Return the client's personal model as it kept it, or None before it has one."""
        return recall_personal(self.memory)


@dataclass(frozen=True, eq=False)
class Learned:
    """What a client made of a round.

    `posterior` is what the server merges, `personal` the client's own model where that is another,
    `extras` what goes with the posterior on the wire (None: as it came), `memory` what the client
    keeps for later rounds, and `metrics` what it has to tell besides the loss. `follow` returns
    what it keeps besides of a reply as the server will read it: the server follows that by itself.
    """

    posterior: Posterior
    personal: Payload | None = None
    extras: Mapping[str, np.ndarray] | None = None
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    follow: Callable[[Payload], Mapping[str, np.ndarray]] | None = None


@dataclass(frozen=True, eq=False)
class ClientReply:
    """A client's answer to a round: what it sends, if it is to report, and its metrics."""

    coded: Coded | None
    num_examples: int
    metrics: dict[str, float]

    @property
    def payload(self) -> Payload | None:
        """Return what the server will read, or None for who does not report."""
        return None if self.coded is None else self.coded.decoded


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
        self.state = RecordDict() if state is None else state  # what lasts from round to round
        self.state_root = state_root or default_state_root()
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
        spent = 0.0 if plan is None else self.pay(told, plan)
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
            lasting = self.lasting(learned, kept, coded)
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

    def lasting(
        self, learned: Learned, kept: Mapping[str, np.ndarray], sent: Coded | None
    ) -> dict[str, np.ndarray]:
        """Return what a client keeps; of one that sends nothing, what the server follows stays."""
        memory = dict(learned.memory)
        if sent is not None:
            return memory | dict(learned.follow(sent.decoded) if learned.follow else {})
        own = {name: array for name, array in memory.items() if name not in self.coupled}
        return own | {name: kept[name] for name in self.coupled if name in kept}

    def score(self, received: Payload, told: Instructions) -> dict[str, dict[str, Pooled]]:
        """Return tallies of the received GM and the client's own PM on its test part.

        They are by whose model (`gm`, `pm`) and way of predicting (`mean`, `mc`).
        """
        images, labels = self.examples("test", self.partition.test)
        models = {"gm": received} if told.score_gm else {}
        if Carries.MODEL in self.carried(self.settings):
            own = recall_personal(self.memory(told).recall(told.last_merged))
            if own is not None:
                models["pm"] = own
        return {who: self.tallies(model, images, labels) for who, model in models.items()}

    def memory(self, told: Instructions) -> Memory:
        """Return where this client keeps things in this run.

        That is in the run's folder if the server says where, else on the client's own disk.
        """
        if told.client_state:
            return Memory(None, Path(told.client_state) / self._name)
        return Memory(self.state, self.state_root / told.run / self._name)

    def received(self, told: Instructions) -> Received:
        """Return where this client keeps what it was sent in this run.

        In the run's folder that is one place for all clients, for they were sent the same.
        """
        if told.client_state:
            most = self.settings.wire.remembered + 1
            return Received(Path(told.client_state) / "received", most)
        return Received(self.state_root / told.run / self._name / "received", 1)

    @property
    def _name(self) -> str:
        return f"partition-{self.partition.number}"

    def task(
        self,
        told: Instructions,
        memory: Mapping[str, np.ndarray] | None = None,
        plan: Plan | None = None,
    ) -> Task:
        """Return the round's data and randomness, by the seed, the round and the partition.

        With a plan for a private run, which examples are taken and their noise follow from nothing.
        """
        entropy = [self.settings.seed, told.round, self.partition.number]
        seeds = np.random.SeedSequence(entropy).generate_state(2)
        if self.device.type == "cpu":
            # torch's own takes longer: it notes for absent devices by whom it was called
            torch.default_generator.manual_seed(int(seeds[0]))
        else:
            torch.manual_seed(int(seeds[0]))
        images, labels = self.examples("train", self.partition.train)
        if self.lies:
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
            generator=torch.Generator().manual_seed(int(seeds[1])),
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
        source = self.partition.source
        rows = self.partition.train
        return ledger.account(digest_of(source.x_train[rows], source.y_train[rows]))

    def plan(self, told: Instructions) -> Plan:
        """Return what the client does in a private run."""
        privacy = self.settings.privacy
        account = self.account(told)
        return Plan(
            privacy=privacy,
            size=account.size(len(self.partition.train), privacy.size_epsilon, told.run),
            batch_size=self.settings.client.batch_size,
            epochs=self.settings.client.epochs,
            rounds=planned_rounds(self.settings, self.partition.number),
        )

    def pay(self, told: Instructions, plan: Plan) -> float:
        """Pay for a round before it is trained, and return the epsilon of the run so far.

        What cannot be paid is a Refused.
        """
        privacy = self.settings.privacy
        assert privacy.epsilon is not None
        release = Steps(
            run=told.run,
            round=told.round,
            method=self.settings.strategy,
            noise=plan.noise_multiplier,
            rate=plan.rate,
            steps=plan.steps,
            clip_norm=privacy.clip_norm,
        )
        return self.account(told).charge(release, epsilon=privacy.epsilon, delta=privacy.delta)

    @property
    def lies(self) -> bool:
        """Tell whether this client of a simulation is one of those that attack the run."""
        settings = self.settings
        liars = settings.attack.liars(settings.data.clients or 0, settings.seed)
        return self.partition.number in liars

    def examples(self, part: Literal["train", "test"], rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return rows of a part of the client's source as tensors, inputs and labels."""
        source = self.partition.source
        x = source.x_train if part == "train" else source.x_test
        y = source.y_train if part == "train" else source.y_test
        data = self.settings.data
        return tensors(x[rows], y[rows], data.scaling, self.device, data.standard)

    def tallies(self, model: Payload, images: Tensor, labels: Tensor) -> dict[str, Pooled]:
        """Return tallies at the mean and, where the model has a precision, by Monte Carlo."""
        samples = self.settings.evaluation.samples
        seed = self.settings.seed
        truth = labels.cpu().numpy()
        scores = chosen_scores(self.settings.evaluation.scores, self.settings.task)
        if self.settings.evaluation.sets and not self.likelihood.is_number:
            scores[SETS] = SETS_SUMS
        drawn = model.posterior.precision is not None and samples
        mirrored = partial(predict_moments, antithetic=self.settings.evaluation.antithetic)
        ways = {"mean": point_moments} | ({"mc": mirrored} if drawn else {})
        tallies = {}
        for way, predicted in ways.items():
            moments = predicted(
                self.flat,
                model.posterior,
                images,
                num_samples=samples,
                seed=seed,
                buffers=model.buffers,
                likelihood=self.likelihood,
            )
            tallies[way] = moments.as_float32().tally(truth, scores)
        return tallies

    def column_sums(self) -> ColumnSums:
        """Return the sums of the client's features, and of the numbers that it is to predict."""
        rows = self.partition.train
        source = self.partition.source
        columns = np.asarray(source.x_train[rows], np.float64).reshape(len(rows), -1)
        labels = source.y_train[rows]
        if self.likelihood.is_number:
            return ColumnSums.of(np.column_stack([columns, labels]))
        return ColumnSums.of(columns, labels, classes(self.settings.data, source))

    # Flower's interface.

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return what the roll call asks of the client's data.

        A client that is to keep things in the run's folder, and does not see it, cannot work.
        """
        place = config.get("client-state")
        keeps = self.carried(self.settings) or self.settings.wire.codec != "raw"
        if place and keeps and not Path(place).parent.is_dir():
            raise RunError(
                f"there is no {Path(place).parent} on {node()}, where clients keep things from "
                "round to round: let --runs name a folder that all machines share"
            )
        source = self.partition.source
        if self.settings.privacy.is_private:
            return {
                "num-train": self.plan(Instructions.from_config(config)).size,
                "num-test": 0,
                "shape": list(source.shape),
                "num-classes": classes(self.settings.data, source),
                "frozen": frozen_digest(self.flat.module),
            }
        num_train = len(self.partition.train)
        return {
            "num-train": claimed_size(self.settings.attack, num_train) if self.lies else num_train,
            "num-test": len(self.partition.test),
            "shape": list(source.shape),
            "num-classes": source.num_classes,
            "frozen": frozen_digest(self.flat.module),
        }

    def fit(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Train for a round; `config` has the instructions, and under `keys` the arrays' names."""
        told = Instructions.from_config(config)
        start = self._decoded(parameters, config, told)
        self.received(told).keep(told.sent, start)
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
        return decoded(arrays, told, self.codec, self.received(told))
