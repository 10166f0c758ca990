"""How a run goes, whatever the method: its rounds, what comes before them, and its folder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedivon_app.core.section import Section


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
        "doubt is dropped; none: where merge.robust is auto or held-out",
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
    epochs: int = Field(100, ge=1, description="at most this many")
    patience: int = Field(
        10, ge=1, description="epochs without a better validation accuracy that end it"
    )
    validation: float = Field(0.1, gt=0, lt=1, description="share of the fraction that validates")


class RunSettings(Section):
    """The run's folder."""

    folder: str | None = Field(
        None,
        description="where run folders are made; none: ./runs for `fedivon`, ~/fedivon-runs for a "
        "bare `flwr run`",
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
        description="what is told the numbers of each round: tensorboard, mlflow, wandb, or your "
        "own as package.module:Class",
    )
