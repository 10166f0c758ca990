"""Typed settings: everything that a run depends on, with what each setting means.

A method adds its own `client` and `merge` sections, so that Settings are generic over the two. How
the settings of a run are composed of files and overrides is in core/compose.py.
"""

from __future__ import annotations

from math import log2
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedivon_app.core.attack_settings import AttackSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.privacy_settings import PrivacySettings
from fedivon_app.core.schedule import Schedule, Shape
from fedivon_app.core.scores import NUMBER_SCORES, chosen_scores
from fedivon_app.core.search_range import even_range, log_range, search
from fedivon_app.core.section import Section
from fedivon_app.core.standardise import Standard
from fedivon_app.core.text import did_you_mean

# Options of single sources that used to be common settings, with the defaults that they had there.
FORMER_DATA_SETTINGS = {"a": 1.0, "b": 1.0, "image_size": None}


Robust = Literal[
    "none",
    "auto",
    "trimmed-mean",
    "median",
    "geometric-median",
    "krum",
    "multi-krum",
    "centred-clipping",
]


class DataSettings(Section):
    """What is learned from, and how it is divided among the clients."""

    source: str = Field(
        "digits",
        description="data set by name, see datasets/sources.py; `nodes`: each node's own file; "
        "package.module:function: a reader of your own",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="what the source's reader takes besides: see its signature",
    )
    path: str | None = Field(
        None, description="the file or folder of the sources npz, table and image-folder"
    )
    label_column: str | None = Field(
        None, description="table: the column that is predicted, a class or a number"
    )
    client_column: str | None = Field(
        None, description="table: the column that says whose a row is; the partition is natural"
    )
    split_column: str | None = Field(
        None, description="table: the column that says train or test; none: data.test_share"
    )
    feature_columns: tuple[str, ...] | None = Field(
        None, description="table: the columns to learn from; none: all the others"
    )
    drop_columns: tuple[str, ...] = Field(
        (), description="table: columns that are left out, such as a patient's number"
    )
    categories: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="table: by column the texts that count; none: those in the file",
    )
    classes: tuple[str, ...] | None = Field(
        None, description="table: the names of the classes in order; none: those in the file"
    )
    test_share: float = Field(
        0.2, gt=0, le=0.9, description="table: the share of each client's rows for tests"
    )
    standardise: bool | None = Field(
        None,
        description="inputs in units of their deviation from the mean over all clients; none: "
        "tables yes, arrays no",
    )
    standard: Standard | None = Field(
        None,
        description="these means and deviations, where they are known; none: the clients are "
        "asked for sums before round 1",
    )
    root: str | None = Field(
        None, description="where data sets lie; default $FEDIVON_DATA or ~/.cache/fedivon-data"
    )
    scaling: Literal["raw", "unit", "signed", "tokens"] = Field(
        "unit",
        description="pixels as 0..255, 0..1 or -1..1; tokens: whole numbers that stay so, for an "
        "embedding",
    )
    labels: Literal["fine", "superclass"] = Field(
        "fine", description="cifar100: its 100 classes or its 20 superclasses"
    )
    shape: tuple[int, ...] | None = Field(
        None, description="source `nodes`: shape of one input, H W C or D"
    )
    num_classes: int | None = Field(
        None, ge=2, description="number of classes, where the source does not tell"
    )
    clients: int | None = Field(
        None, ge=1, description="number of clients; none: as many as the federation has nodes"
    )
    partition: str = Field(
        "iid", description="how examples are dealt to clients, see datasets/partition.py"
    )
    fraction: float = Field(
        1.0, gt=0, le=1, description="iid, heterogeneous: share of the data that is used"
    )
    shards_per_client: int = Field(2, ge=1, description="shards: how many a client gets")
    shard_sizes: tuple[int, int] | None = Field(
        None, description="shards: smallest and largest shard; none: equal cuts"
    )
    alpha: float = Field(0.5, gt=0, description="dirichlet: concentration; small is heterogeneous")
    min_examples: int = Field(1, ge=1, description="dirichlet: fewest examples a client may get")
    equal_sizes: bool = Field(
        False, description="dirichlet: clients of one size, each with a draw of labels of its own"
    )
    labels_per_client: int = Field(5, ge=1, description="labels: how many a client holds")
    per_class: int = Field(300, ge=1, description="two-class: examples of each of the two classes")
    concentration: float = Field(
        0.5, gt=0, description="heterogeneous: concentration of a client's labels"
    )
    label_noise: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the clients' training labels that are flipped to another one",
    )
    max_examples: int | None = Field(
        None, ge=1, description="cap on the training examples of a client"
    )
    holdout: int = Field(
        0,
        ge=0,
        description="training examples that the server keeps to choose the best checkpoint by",
    )

    @field_validator("classes", "drop_columns", "feature_columns", "categories", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        """Take whole numbers for texts, as a table's classes and columns may be called so."""
        if isinstance(value, dict):
            return {str(key): cls._texts(inside) for key, inside in value.items()}
        if not isinstance(value, list | tuple):
            return value
        return [str(item) if type(item) is int else item for item in value]

    @model_validator(mode="before")
    @classmethod
    def _natural(cls, values: Any) -> Any:
        """Keep the division that the data come with, unless another is asked for."""
        if not isinstance(values, dict) or not values.get("client_column"):
            return values
        return {"partition": "natural"} | values

    @model_validator(mode="before")
    @classmethod
    def _former_names(cls, values: Any) -> Any:
        """Take options of single sources under the names that they had as common settings."""
        if not isinstance(values, dict):
            return values
        kept = {key: value for key, value in values.items() if key not in FORMER_DATA_SETTINGS}
        given = {
            key: values[key]
            for key, default in FORMER_DATA_SETTINGS.items()
            if key in values and values[key] != default
        }
        options = kept.get("options") or {}
        if not given or not isinstance(options, dict):
            return kept
        return kept | {"options": given | options}


class ModelSettings(Section):
    """The network: by name from the zoo, or the user's own by import path."""

    name: str = Field("mlp", description="network by name, see core/models.py")
    factory: str | None = Field(
        None, description="the user's own builder, as package.module:function"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="what the builder takes besides shape and classes"
    )
    weights: str | None = Field(
        None,
        description="a file with the network's first weights by name (.safetensors, or of "
        "torch.save), which the server and every node have; the head is learned anew",
    )
    trainable: str | None = Field(
        None,
        description="what is learned, and travels: head, lora, or parameters by name, as in "
        "layer4.*,fc.*; none: everything",
    )
    lora_rank: int = Field(4, ge=1, description="lora: the rank of what each layer learns")
    dropout: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Monte Carlo dropout after every linear and convolution layer: its rate",
        json_schema_extra=search(even_range(0.05, 0.5)),
    )
    dropout_logits: bool = Field(
        False, description="after the last layer, whose outputs are the logits, too"
    )


class ClientSettings(Section):
    """What every client's local training has."""

    schedules_steps: ClassVar[bool] = False  # whether the rate may fall within a round

    epochs: int = Field(1, ge=1, description="over the client's data, a round")
    batch_size: int = Field(32, ge=1, description="examples a step")
    learning_rate: float = Field(
        0.1,
        gt=0,
        description="in the first round",
        json_schema_extra=search(log_range(1e-3, 1.0)),
    )
    final_learning_rate: float | None = Field(
        None, gt=0, description="at the last round; none: the same as at the first"
    )
    schedule: Shape = Field(
        "constant", description="how the rate falls from the first to the final one"
    )
    schedule_over: Literal["rounds", "steps"] = Field(
        "rounds",
        description="what linear and cosine run over: the rounds, or, for clients that run IVON, "
        "in every round anew the local steps",
    )
    decay: float = Field(
        0.04, ge=0, description="exponential: the rate falls by exp(-decay) a round"
    )
    decay_after: int = Field(50, ge=0, description="exponential: rounds before it begins to fall")
    class_weights: Literal["balanced"] | tuple[float, ...] | None = Field(
        None,
        description="how much an example of each class counts in the loss; balanced: as many "
        "times as all clients together have fewer of its class than of an average one",
    )
    device: str = Field(
        "auto", description="torch device; auto: CUDA where there is one, else the CPU"
    )

    @model_validator(mode="after")
    def _schedule_has_an_end(self) -> Self:
        if self.schedule_over == "steps" and not self.schedules_steps:
            raise ValueError("schedule_over steps is for clients that run IVON; use rounds")
        if (self.schedule in ("linear", "cosine")) != (self.final_learning_rate is not None):
            raise ValueError(
                "final_learning_rate goes with schedule linear or cosine; constant and "
                "exponential go without it"
            )
        return self

    def initial_precision(self, weights: np.ndarray) -> float | None:
        """Return the precision before round 1, around these weights; None for a point's clients."""
        return None

    def moved_by(self, posterior: Posterior) -> np.ndarray | None:
        """Return how far a gradient of 1 moves each weight, at a rate of 1.

        It is None where that is not known beforehand, as with Adam.
        """
        return None

    def before_round_1(self, epochs: int) -> Self:
        """Return the settings of one who trains alone, before there is a server's posterior."""
        return self.model_copy(update={"epochs": epochs})

    @property
    def rates(self) -> Schedule:
        """Return the schedule of the learning rate."""
        return Schedule(
            shape=self.schedule,
            first=self.learning_rate,
            final=self.final_learning_rate,
            decay=self.decay,
            decay_after=self.decay_after,
        )

    def rate_in(self, server_round: int, rounds: int) -> float:
        """Return the rate of a round, which is the first where it falls over a round's steps."""
        if self.schedule_over == "steps" and self.schedule != "exponential":
            return self.learning_rate
        return self.rates.in_round(server_round, rounds)


class HeadSettings(ClientSettings):
    """What clients have in common that treat two parts of their network differently."""

    head: str = Field(
        "head", description="submodule of the model that is its head; the base is the rest"
    )


class PosteriorClientSettings(ClientSettings):
    """What clients that learn a precision have in common."""

    start: Literal["posterior", "mean"] | None = Field(
        None,
        description="where a round starts: at the server's posterior, or its mean alone; none: "
        "by merge.rule",
    )


class ServerSettings(Section):
    """How rounds are run, whatever the method."""

    min_replies: int = Field(
        1, ge=1, description="fewer good replies than this leave the global posterior as it was"
    )
    round_timeout: float = Field(
        3600, gt=0, description="seconds to wait for the replies of a round"
    )
    quorum: int | None = Field(
        None,
        ge=1,
        description="with this many replies a round waits no longer than `grace` for the rest; "
        "none: for all",
    )
    grace: float = Field(10, ge=0, description="seconds that a round goes on after its quorum")
    node_timeout: float = Field(
        120, gt=0, description="seconds to wait for the nodes before the first round"
    )
    precision_bound: float | None = Field(
        None,
        ge=1,
        description="a client's precision at most, block by block: times the round's median, and "
        "more where it has more examples; none: any, for honest clients may differ by thousands",
    )
    change_bound: float | None = Field(
        None,
        ge=1,
        description="how far a client may move the mean: times the round's median, and further "
        "where it makes more steps; none: any",
    )
    size_bound: float | None = Field(
        None,
        ge=1,
        description="examples that a client counts for at most: times the round's median; none: "
        "as many as it said in the roll call",
    )
    history: bool | None = Field(
        None,
        description="whether a client's answers are held against its earlier ones, and one in "
        "doubt is dropped; none: where merge.robust is auto",
    )
    leave_out_after: int = Field(
        3,
        ge=1,
        description="rounds in doubt, by its history, after which a client is left out of the run",
    )
    max_growth: float = Field(
        1e6, gt=1, description="the run stops when a mean or precision grows by more than this"
    )


class PretrainingSettings(Section):
    """Training by the server before round 1."""

    fraction: float = Field(
        0.0, ge=0, lt=1, description="share of the training examples; 0: no pretraining"
    )
    epochs: int = Field(100, ge=1, description="at most as many")
    patience: int = Field(
        10, ge=1, description="epochs without a better validation accuracy that end it"
    )
    validation: float = Field(0.1, gt=0, lt=1, description="share of the fraction that validates")


class EvaluationSettings(Section):
    """When, and with how many weight samples, the global model is scored."""

    every: int = Field(
        10,
        ge=0,
        description="rounds between server evaluations; the last round is always one; 0: only it",
    )
    at: tuple[int, ...] = Field((), description="rounds that are scored besides")
    samples: int = Field(32, ge=0, description="Monte Carlo samples; 0: at the mean only")
    final_samples: int = Field(64, ge=0, description="Monte Carlo samples after the last round")
    antithetic: bool = Field(
        False,
        description="every second sample mirrors the one before it at the mean, for the error of "
        "several times as many",
    )
    clients_every: int = Field(
        0,
        ge=0,
        description="rounds between evaluations on the clients' test parts, and after the last; "
        "0: never",
    )
    sets: bool = Field(
        False,
        description="clients also report histograms of their scores, by which prediction sets are "
        "calibrated; see clients_every",
    )
    personal: bool = Field(
        False,
        description="clients keep what they trained last as a PM, scored beside the GM; some "
        "methods always do",
    )
    ood: str | None = Field(
        None, description="out-of-distribution data: a source by name, see datasets/sources.py"
    )
    ood_path: str | None = Field(
        None, description="its file or folder, for the sources npz and image-folder"
    )
    ood_size: int = Field(
        5000, ge=1, description="test examples that are compared with as many of the ood data"
    )
    scores: tuple[str, ...] = Field(
        (),
        description="scores beside the usual ones: auroc, auprc, sensitivity_at_80, _90, _95 and "
        "_99 (percent of specificity), or your own as package.module:NAME",
    )
    select_by: str = Field("nll", description="held-out score of the best checkpoint")

    @field_validator("scores")
    @classmethod
    def _scores_exist(cls, scores: tuple[str, ...]) -> tuple[str, ...]:
        chosen_scores(scores)
        return scores

    @field_validator("select_by")
    @classmethod
    def _score_exists(cls, select_by: str, info: ValidationInfo) -> str:
        own = info.data.get("scores")  # absent if they are wrong, which is complained of already
        if own is None:
            return select_by
        known = {**chosen_scores(own), **NUMBER_SCORES}
        if select_by not in known:
            raise ValueError(f"there is no such score: {did_you_mean(select_by, known)}")
        return select_by


class RunSettings(Section):
    """The run's folder."""

    folder: str | None = Field(
        None, description="where run folders are made; default ~/fedivon-runs"
    )
    checkpoint_every: int = Field(10, ge=1, description="rounds between checkpoints")
    client_state: Literal["node", "run"] = Field(
        "node",
        description="where clients keep what lasts: each on its own disk, or in the run's "
        "folder, as a simulation can",
    )
    stop_after: int | None = Field(
        None, ge=1, description="stop after this round, to be resumed later"
    )
    trackers: tuple[str, ...] = Field(
        (),
        description="who else is told the numbers of each round: tensorboard, mlflow, wandb, or "
        "your own as package.module:Class",
    )


class WireSettings(Section):
    """How posteriors travel, in both directions."""

    codec: Literal["raw", "compact"] = Field(
        "raw", description="float32 as it is, or steps as coarse as the posterior's sigma allows"
    )
    mean_step: float = Field(1.0, ge=1e-6, le=1e6, description="compact: a mean's step, in sigmas")
    largest_step: float = Field(
        0.5,
        ge=1e-6,
        le=1e6,
        description="compact: a mean's step at most, as a share of its tensor's usual weights",
    )
    precision_step: float = Field(
        0.25,
        ge=1 / 64,
        le=1,
        description="compact: a precision's step in octaves, a power of two",
    )
    point_step: float = Field(
        2.0,
        ge=1e-6,
        le=1e6,
        description="compact: a point's step in a reply, as a share of its tensor's usual change",
    )
    whole_point_step: float = Field(
        1 / 64,
        ge=1e-6,
        le=1e6,
        description="compact: the step of a point that the server sends, as a share of its "
        "tensor's usual weights",
    )
    remembered: int = Field(
        32,
        ge=1,
        description="compact: how many of the posteriors that it sent the server keeps, to tell "
        "who holds one of them only what has changed",
    )

    @field_validator("precision_step")
    @classmethod
    def _power_of_two(cls, value: float) -> float:
        if log2(value) % 1:
            raise ValueError(f"{value} is no power of two, such as 0.25 or 0.125")
        return value


class MergeSettings(Section):
    """How the clients' models become the server's; a method has options of its own beside these."""

    rule: str = Field("nwa", description="aggregation rule, see strategies/aggregation.py")
    weighting: str = Field("size", description="weighting rule, see strategies/weighting.py")
    robust: Robust = Field(
        "none",
        description="what keeps a minority of liars from moving the merge, before the rule; auto: "
        "what is advised, the clients' history included",
    )
    robust_share: float = Field(
        0.3,
        gt=0,
        lt=0.5,
        description="robust, all but auto: the share of a round's replies that may lie",
    )
    robust_mixing: bool = Field(
        False,
        description="robust, all but auto: each reply becomes the average of its nearest ones "
        "first; not where a method takes replies whole",
    )


C_co = TypeVar("C_co", bound=ClientSettings, covariant=True)
M_co = TypeVar("M_co", bound=MergeSettings, covariant=True)


class Settings(Section, Generic[C_co, M_co]):
    """Everything that a run depends on, generic over the options of a method's client and merge."""

    experiment: str = Field(description="the experiment's name, conf/experiment/<name>.yaml")
    strategy: str = Field(description="the method, by name or as package.module:METHOD")
    dataset: str | None = Field(
        None, description="a data set's values, conf/data/<name>.yaml; none: those of `data`"
    )
    task: Literal["classification", "regression"] = Field(
        "classification", description="whether a class or a number is predicted"
    )
    seed: int = Field(0, ge=0, description="of all that is drawn at random")
    rounds: int = Field(10, ge=1, description="rounds of the run")
    clients_per_round: int | None = Field(
        None, ge=1, description="clients sampled a round; none: all"
    )
    train_all_clients: bool = Field(
        False,
        description="all clients train in every round, and only those sampled report to the server",
    )
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    server: ServerSettings = ServerSettings()
    pretraining: PretrainingSettings = PretrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    run: RunSettings = RunSettings()
    wire: WireSettings = WireSettings()
    privacy: PrivacySettings = PrivacySettings()
    attack: AttackSettings = AttackSettings()
    client: C_co
    merge: M_co

    @model_validator(mode="before")
    @classmethod
    def _sections_of_the_method(cls, values: Any) -> Any:
        """Give a method's own sections their defaults."""
        return {"client": {}, "merge": {}} | values if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _fits_the_task(self) -> Self:
        evaluation = self.evaluation
        scores = chosen_scores(evaluation.scores, self.task)
        if evaluation.select_by not in scores:
            raise ValueError(
                f"evaluation.select_by is {evaluation.select_by}, and task {self.task} has no such "
                f"score: choose from {', '.join(scores)}"
            )
        weights = self.client.class_weights
        if self.privacy.is_private and (self.task == "regression" or weights is not None):
            raise ValueError(
                "privacy.epsilon is for the plain cross-entropy of classes: leave out task "
                "regression and client.class_weights"
            )
        if self.task == "regression" and self.data.label_noise:
            raise ValueError("data.label_noise flips classes, and task is regression")
        if self.task == "regression" and self.client.class_weights is not None:
            raise ValueError("client.class_weights is for classes, and task is regression")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (
            self.data.clients
            and self.clients_per_round
            and self.clients_per_round > self.data.clients
        ):
            raise ValueError(
                f"clients_per_round is {self.clients_per_round}, but data.clients is "
                f"{self.data.clients}: "
                "sample at most as many clients as there are"
            )
        if self.clients_per_round and self.server.min_replies > self.clients_per_round:
            raise ValueError(
                f"server.min_replies is {self.server.min_replies}, but clients_per_round is "
                f"{self.clients_per_round}"
            )
        return self

    @property
    def keeps_history(self) -> bool:
        """Tell whether clients are held against what they answered earlier in the run."""
        asked = self.server.history
        return self.merge.robust == "auto" if asked is None else asked

    def is_scored(self, server_round: int) -> bool:
        """Tell whether the server scores the global model in this round."""
        plan = self.evaluation
        regular = bool(plan.every) and server_round % plan.every == 0
        return server_round == self.rounds or regular or server_round in plan.at


AnySettings = Settings[ClientSettings, MergeSettings]
