"""What every merge has, and options of merges that a server and its clients both read."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedivon_app.core.duality import Space
from fedivon_app.core.search_range import log_range, search
from fedivon_app.core.section import Section

Robust = Literal[
    "none",
    "auto",
    "held-out",
    "trimmed-mean",
    "median",
    "geometric-median",
    "krum",
    "multi-krum",
    "centred-clipping",
]
ADVISED: tuple[Robust, ...] = ("auto", "held-out")  # by the clients' history


class MergeSettings(Section):
    """How the clients' models become the server's; a method has options of its own beside these."""

    rule: str = Field("nwa", description="aggregation rule, see strategies/aggregation.py")
    weighting: str = Field("size", description="weighting rule, see strategies/weighting.py")
    robust: Robust = Field(
        "none",
        description="what keeps a minority of liars from moving the merge, before the rule; auto: "
        "what is advised, the clients' history included; held-out: the same, and who makes the "
        "merge worse on the server's held-out examples is left out of it",
    )
    robust_share: float = Field(
        0.3,
        gt=0,
        lt=0.5,
        description="robust, all but auto and held-out: the share of a round's replies that "
        "may lie",
    )
    robust_mixing: bool = Field(
        False,
        description="robust, all but auto and held-out: each reply becomes the average of its "
        "nearest ones first; not where a method takes replies whole",
    )
    robust_space: Literal["moments", "natural"] = Field(
        "moments",
        description="robust, trimmed-mean and median: of which coordinates; moments: the mean and "
        "the logarithm of the precision; natural: the precision, and the mean times it",
    )
    robust_memory: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="robust, centred-clipping: how much of the last round's move of the mean is "
        "the centre from which changes are clipped; 0: what was sent is",
    )


class AdmmMergeSettings(MergeSettings):
    """What every server of the ADMM family has."""

    rule: Literal["admm"] = "admm"
    weighting: Literal["equal"] = "equal"
    rho: float = Field(
        1.0,
        gt=0,
        description="how strongly clients are tied to the server",
        json_schema_extra=search(log_range(0.01, 10.0)),
    )
    dual_step: float = Field(
        1.0, ge=0, description="gamma", json_schema_extra=search(log_range(1e-4, 1.0))
    )
    prior_precision: float = Field(
        1.0,
        gt=0,
        description="delta, of the prior N(0, 1/delta)",
        json_schema_extra=search(log_range(1e-4, 10.0)),
    )
    alpha: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of prior and duals; none: ADMM's, by rho and the number of clients; "
        "PVI: 1",
    )


class FedAdmmMergeSettings(AdmmMergeSettings):
    """Federated ADMM's, where the prior may be left out."""

    prior_precision: float = Field(
        1.0,
        ge=0,
        description="delta, of the prior N(0, 1/delta)",
        json_schema_extra=search(log_range(1e-4, 10.0)),
    )


class BayesAdmmMergeSettings(AdmmMergeSettings):
    """BayesADMM's, with diagonal covariances."""

    dual_space: Space = Field("natural", description="of the dual step; expectation: BregmanADMM")
    smallest_precision: float = Field(
        1e-6, gt=0, description="a smaller merged precision is raised to this, and counted"
    )


class FullBayesAdmmMergeSettings(AdmmMergeSettings):
    """BayesADMM's, with full covariances."""

    dual_space: Space = Field("natural", description="of the dual step; expectation: BregmanADMM")
    largest_size: int = Field(
        2000, ge=1, description="weights at most: their precision is a matrix"
    )


class PFedHBMergeSettings(MergeSettings):
    """pFedHB's, for Adam on the clients' divergences and a hyper-prior."""

    rule: Literal["hierarchical"] = "hierarchical"
    solution: Literal["optimise", "closed"] = Field(
        "optimise",
        description="Adam's steps, or the minimum, which has a closed form without penalties",
    )
    constraint: Literal["none", "pfedbayes"] = Field(
        "none",
        description="pfedbayes: as if all clients' means were the server's, "
        "so that variances are averaged",
    )
    shared: Literal["both", "base"] = Field(
        "both", description="parts of the model that travel; base: there is no GM"
    )
    mean_penalty: float = Field(
        5.0,
        ge=0,
        description="lambda_1, of |mu|^2",
        json_schema_extra=search(log_range(0.1, 50.0)),
    )
    sigma_penalty: float = Field(
        5.0,
        ge=0,
        description="lambda_2, of |sigma|^2",
        json_schema_extra=search(log_range(0.1, 50.0)),
    )
    steps: int = Field(5, ge=1, description="of Adam, a round")
    learning_rate: float = Field(
        0.01,
        gt=0,
        description="of Adam",
        json_schema_extra=search(log_range(1e-3, 0.1, solution="optimise")),
    )
    milestones: tuple[int, ...] = Field((60, 80), description="rounds after which the rate falls")
    decay: float = Field(0.1, gt=0, le=1, description="by this factor")

    @model_validator(mode="after")
    def _closed_without_penalties(self) -> Self:
        if self.solution == "closed" and (self.mean_penalty or self.sigma_penalty):
            raise ValueError(
                "solution closed is for mean_penalty 0 and sigma_penalty 0; "
                "with penalties use solution optimise"
            )
        return self

    def rate_in(self, server_round: int) -> float:
        """Return Adam's rate in a round, which falls after each milestone."""
        return self.learning_rate * self.decay ** sum(
            server_round > stone for stone in self.milestones
        )
