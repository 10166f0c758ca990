"""What every client's local training has; a method's clients add options of their own."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedivon_app.core.posterior import Posterior
from fedivon_app.core.schedule import Schedule, Shape
from fedivon_app.core.search_range import log_range, search
from fedivon_app.core.section import Section


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
        description="how much an example of each class counts in the loss; balanced: an "
        "example of class c counts N / (C n_c) times, by the numbers of all clients together",
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
