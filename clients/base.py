"""PosteriorClient: what every method's client does, under Flower's NumPyClient interface."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from flwr.client import NumPyClient
from torch import Tensor, nn

from fedivon_app.clients.state import Memory, default_root, keep_personal, recall_personal
from fedivon_app.core import client_scores
from fedivon_app.core.codec import Codec, Payload, Raw
from fedivon_app.core.metrics import Tally
from fedivon_app.core.network import network, pick_device
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict, predict_point
from fedivon_app.core.settings import ClientSettings, Settings
from fedivon_app.datasets.loading import Partition, classes, tensors


@dataclass(frozen=True)
class Task:
    """One round of local training: the data in memory, the rate of the round, and the order of the examples."""

    inputs: Tensor
    labels: Tensor
    epochs: int
    batch_size: int
    learning_rate: float
    generator: torch.Generator
    server_round: int = 1
    total_examples: int = 0  # of all clients
    memory: dict[str, np.ndarray] = field(
        default_factory=dict
    )  # what lasts: read and changed by `train`
    extras: dict[str, np.ndarray] = field(
        default_factory=dict
    )  # what the method adds to a posterior: the same

    @property
    def steps(self) -> int:
        """How many batches there are."""
        return self.epochs * ceil(len(self.labels) / self.batch_size)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Every example once an epoch, shuffled."""
        for _ in range(self.epochs):
            order = torch.randperm(len(self.labels), generator=self.generator).to(
                self.labels.device
            )
            for rows in order.split(self.batch_size):
                yield self.inputs[rows], self.labels[rows]


class PosteriorClient(NumPyClient):
    """The shared half of every client. A method says in `train` how a posterior becomes the client's own."""

    Settings: type[ClientSettings] = ClientSettings
    remembers = False  # whether `train` reads and changes the task's memory
    personalises = (
        False  # whether the method is about personal models: then clients always keep one
    )

    def __init__(
        self,
        settings: Settings,
        partition: Partition,
        state: RecordDict | None = None,
        state_root: Path | None = None,
    ):
        self.settings = settings
        self.partition = partition
        self.state = RecordDict() if state is None else state  # what lasts from round to round
        self.state_root = state_root or default_root()
        self.codec: Codec = Raw()
        self.device = pick_device(settings.client.device)
        self.flat = network(
            settings.model,
            partition.source.shape,
            classes(settings.data, partition.source),
            self.device,
        )
        self.loss_sum = self.steps = 0
        self.metrics: dict[str, float] = {}  # what `train` has to tell besides the loss
        self.personal: Payload | None = (
            None  # the PM, where `train` makes another model than what it returns
        )

    @abstractmethod
    def train(self, start: Payload, task: Task) -> Posterior:
        """The client's posterior after local training from the server's `start`."""

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of a minibatch; also counted for the round's metrics."""
        loss = nn.functional.cross_entropy(self.forward(inputs), labels)
        self.loss_sum = self.loss_sum + loss.detach()
        self.steps = self.steps + 1
        return loss

    def forward(self, inputs: Tensor) -> Tensor:
        """The network's logits during training."""
        return self.flat.module(inputs)

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        source = self.partition.source
        return {
            "num-train": len(self.partition.train),
            "num-test": len(self.partition.test),
            "shape": list(source.shape),
            "num-classes": source.num_classes,
        }

    def fit(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        began = time.perf_counter()
        start = self.codec.decode(dict(zip(config["keys"], parameters, strict=True)))
        memory = self.memory(config)
        task = replace(self.task(config), extras=dict(start.extras))
        if self.goes_on(self.settings):
            task.memory.update(memory.recall(config.get("last-merged", 0)))
        self.flat.load(start.posterior.mean)
        if start.buffers is not None:
            self.flat.load_buffers(start.buffers)
        self.flat.module.train()
        posterior = self.train(start, task)
        payload = Payload(posterior, self.flat.buffers, task.extras)
        if self.keeps_personal:
            keep_personal(task.memory, self.personal or Payload(posterior, payload.buffers))
        if self.keeps:
            memory.keep(
                config["round"],
                task.memory,
                {config.get(name, 0) for name in ("last-merged", "last-saved")},
            )
        result = self.codec.encode(payload, start) if config.get("report", True) else {}
        metrics = {"loss": float(self.loss_sum) / max(self.steps, 1), **self.metrics}
        metrics["seconds"] = time.perf_counter() - began
        return [result[key] for key in config["keys"] if result], len(task.labels), metrics

    @classmethod
    def goes_on(cls, settings: Settings) -> bool:
        """Whether a client's round depends on what it kept in earlier ones. If not, the training of one that neither
        reports nor is scored is seen by nobody."""
        return cls.remembers or cls.personalises

    @property
    def keeps_personal(self) -> bool:
        return self.personalises or self.settings.evaluation.personal

    @property
    def keeps(self) -> bool:
        """Whether anything lasts from round to round."""
        return self.goes_on(self.settings) or self.keeps_personal

    def memory(self, config: dict[str, Any]) -> Memory:
        """What this client keeps in this run: in the run's folder if the server says where, else on its own disk."""
        name = f"partition-{self.partition.number}"
        if shared := config.get("client-state"):
            return Memory(None, Path(shared) / name)
        return Memory(self.state, self.state_root / config.get("run", "run") / name)

    def task(self, config: dict[str, Any]) -> Task:
        """The round's data and randomness, a function of the seed, the round and the partition."""
        seeds = np.random.SeedSequence(
            [self.settings.seed, config["round"], self.partition.number]
        ).generate_state(2)
        seed = (
            torch.default_generator.manual_seed if self.device.type == "cpu" else torch.manual_seed
        )
        seed(
            int(seeds[0])
        )  # torch's own takes longer: for devices that are not there it notes by whom it was called
        images, labels = self.examples("train", self.partition.train)
        client = self.settings.client
        shuffle = torch.Generator().manual_seed(int(seeds[1]))
        now = config["learning-rate"], shuffle, config["round"], config.get("total-examples", 0)
        return Task(images, labels, client.epochs, client.batch_size, *now)

    def examples(self, part: str, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        source = self.partition.source
        x, y = (
            (source.x_train, source.y_train) if part == "train" else (source.x_test, source.y_test)
        )
        return tensors(x[rows], y[rows], self.settings.data.scaling, self.device)

    def evaluate(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[float, int, dict[str, Any]]:
        """The received GM and the client's own PM on the client's test part, as statistics that can be pooled."""
        start = self.codec.decode(dict(zip(config["keys"], parameters, strict=True)))
        images, labels = self.examples("test", self.partition.test)
        models = {"gm": start} if config.get("score-gm", True) else {}
        if self.keeps_personal and (
            own := recall_personal(self.memory(config).recall(config.get("last-merged", 0)))
        ):
            models["pm"] = own
        tallies = {who: self.tallies(model, images, labels) for who, model in models.items()}
        loss = next((ways["mean"].scores()["nll"] for ways in tallies.values()), 0.0)
        return loss, len(labels), client_scores.to_metrics(tallies)

    def tallies(self, model: Payload, images: Tensor, labels: Tensor) -> dict[str, Tally]:
        """At the mean and, where the model has a precision, by Monte Carlo."""
        draws = (self.settings.evaluation.samples, self.settings.seed)
        truth = labels.cpu().numpy()
        options = {"buffers": model.buffers}
        ways = {"mean": predict_point(self.flat, model.posterior, images, *draws, **options)}
        if model.posterior.precision is not None and draws[0]:
            ways["mc"] = predict(self.flat, model.posterior, images, *draws, **options)
        return {way: Tally.of(probabilities, truth) for way, probabilities in ways.items()}
