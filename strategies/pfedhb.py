"""pFedHB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from fedivon_app.core.meanfield import Gaussian
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import Settings as AppSettings
from fedivon_app.strategies.aggregation import aggregate
from fedivon_app.strategies.base import MergeSettings, PosteriorStrategy
from fedivon_app.strategies.parts import KnowsHead
from fedivon_app.strategies.replies import Reply

ADAM = ("exp_avg", "exp_avg_sq", "step")


class PFedHBMergeSettings(MergeSettings):
    rule: Literal["hierarchical"] = "hierarchical"
    solution: Literal["optimise", "closed"] = Field(
        "optimise",
        description="Adam's steps, or the minimum, which has a closed form without penalties",
    )
    constraint: Literal["none", "pfedbayes"] = Field(
        "none",
        description="pfedbayes: as if all clients' means were the server's, so that variances are averaged",
    )
    shared: Literal["both", "base"] = Field(
        "both", description="parts of the model that travel; base: there is no GM"
    )
    mean_penalty: float = Field(5.0, ge=0, description="lambda_1, of |mu|^2")
    sigma_penalty: float = Field(5.0, ge=0, description="lambda_2, of |sigma|^2")
    steps: int = Field(5, ge=1, description="of Adam, a round")
    learning_rate: float = Field(0.01, gt=0)
    milestones: tuple[int, ...] = Field((60, 80), description="rounds after which the rate falls")
    decay: float = Field(0.1, gt=0, le=1, description="by this factor")

    @model_validator(mode="after")
    def _closed_without_penalties(self) -> PFedHBMergeSettings:
        if self.solution == "closed" and (self.mean_penalty or self.sigma_penalty):
            raise ValueError(
                "solution closed is for mean_penalty 0 and sigma_penalty 0; with penalties use solution optimise"
            )
        return self


class PFedHB(KnowsHead, PosteriorStrategy):
    """pFedHB's server (Thapa and Li 2025, Eq. 9): a few steps of Adam, whose moments last from round to round, on

        sum_k w_k KL(q_k || N(mu, sigma^2)) + lambda_1 |mu|^2 + lambda_2 |sigma|^2,      sigma = softplus(rho).

    In mu and sigma the sum is KL(p || N(mu, sigma^2)) and a constant, with p the clients' linear pool: its mean is
    sum w_k mu_k, its variance sum w_k (var_k + (mu_k - mean)^2). Without penalties p is the minimum. Under pFedBayes'
    constraint mu_k = mu (section 4.2) its variance is sum w_k var_k. All of it goes coordinate by coordinate, so that
    the paper's order, first the base and then the head, is the same as both at once.
    """

    Settings = PFedHBMergeSettings

    def __init__(
        self, settings: AppSettings, shape: tuple[int, ...] = (), num_classes: int | None = None
    ):
        super().__init__(settings, shape, num_classes)
        self.network = shape, num_classes
        self.has_global_model = settings.merge.shared == "both"
        self.adam: dict[
            str, dict[str, torch.Tensor]
        ] = {}  # moments and count of steps, of the mean and of rho

    def merge(
        self, replies: Sequence[Reply], weights: np.ndarray, previous: Posterior
    ) -> Posterior:
        merge = self.settings.merge
        rule = "nwa" if merge.constraint == "pfedbayes" else "lp"
        pool = aggregate(rule, (reply.posterior for reply in replies), weights)
        merged = pool if merge.solution == "closed" else self.approach(pool, previous)
        if merge.shared == "both":
            return merged
        for array, before in ((merged.mean, previous.mean), (merged.precision, previous.precision)):
            array[self.head] = before[self.head]
        return merged

    def approach(self, pool: Posterior, previous: Posterior) -> Posterior:
        """Adam's steps from the previous posterior."""
        merge = self.settings.merge
        server = Gaussian.of(previous)
        (mean, variance) = map(torch.from_numpy, (pool.mean, pool.variance))
        optimizer = torch.optim.Adam(server.parameters(), lr=self.rate, fused=True)
        named = dict(zip(("mean", "rho"), server.parameters(), strict=True))
        for (
            name,
            kept,
        ) in self.adam.items():  # copies: what `state` gave for the last round stays as it is
            optimizer.state[named[name]] = {key: value.clone() for key, value in kept.items()}
        for _ in range(merge.steps):
            server.zero_gradient()
            server.add_fit(mean, variance)
            server.mean.grad.add_(server.mean.detach(), alpha=2 * merge.mean_penalty)
            server.rho.grad.addcmul_(server.sigma, server.slope, value=2 * merge.sigma_penalty)
            optimizer.step()
        self.adam = {name: optimizer.state[parameter] for name, parameter in named.items()}
        return server.posterior()

    @property
    def rate(self) -> float:
        merge = self.settings.merge
        return merge.learning_rate * merge.decay ** sum(
            self.record["round"] > stone for stone in merge.milestones
        )

    def state(self) -> dict[str, np.ndarray]:
        adam = {
            f"adam_{name}.{key}": value
            for name, kept in self.adam.items()
            for key, value in kept.items()
        }
        return super().state() | {name: value.numpy().reshape(-1) for name, value in adam.items()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        super().load_state(state)
        for name in ("mean", "rho"):
            found = {key: state.get(f"adam_{name}.{key}") for key in ADAM}
            if found["step"] is not None:
                tensors = {key: torch.from_numpy(value.copy()) for key, value in found.items()}
                self.adam[name] = tensors | {"step": tensors["step"].squeeze()}
