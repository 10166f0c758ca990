"""Typed settings: everything that a run depends on, with what each setting means.

Each section has a module of its own. A method adds its `client` and `merge` sections, so that
Settings are generic over the two. How the settings of a run are composed of files and overrides is
in core/compose.py.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import Field, model_validator

from fedivon_app.core.attack_settings import AttackSettings
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.data_settings import DataSettings
from fedivon_app.core.evaluation_settings import EvaluationSettings
from fedivon_app.core.merge_settings import ADVISED, MergeSettings
from fedivon_app.core.model_settings import ModelSettings
from fedivon_app.core.privacy_settings import PrivacySettings
from fedivon_app.core.run_settings import PretrainingSettings, RunSettings, ServerSettings
from fedivon_app.core.scores import chosen_scores
from fedivon_app.core.section import Section
from fedivon_app.core.wire_settings import WireSettings

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

    @model_validator(mode="after")
    def _has_examples_to_try_replies_on(self) -> Self:
        if self.merge.robust != "held-out":
            return self
        if not self.data.holdout:
            raise ValueError(
                "merge.robust is held-out, but data.holdout is 0, and the server has no examples "
                "to try replies on: say how many it keeps with data.holdout, or use "
                "merge.robust=auto"
            )
        if self.data.source == "nodes" and not self.data.path:
            raise ValueError(
                "merge.robust is held-out, but data.source is nodes and the server has no file to "
                "take the data.holdout examples from: name one with data.path, or use "
                "merge.robust=auto"
            )
        return self

    @property
    def keeps_history(self) -> bool:
        """Tell whether clients are held against what they answered earlier in the run."""
        asked = self.server.history
        return self.merge.robust in ADVISED if asked is None else asked

    def is_scored(self, server_round: int) -> bool:
        """Tell whether the server scores the global model in this round."""
        plan = self.evaluation
        regular = bool(plan.every) and server_round % plan.every == 0
        return server_round == self.rounds or regular or server_round in plan.at


AnySettings = Settings[ClientSettings, MergeSettings]
