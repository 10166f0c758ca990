"""pFedBayes."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch.nn.functional import softplus

from fedivon_app.core.meanfield import inverse_softplus
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import MergeSettings
from fedivon_app.strategies.base import Merged, PosteriorMergeSettings, PosteriorStrategy, Round


class PFedBayesMergeSettings(PosteriorMergeSettings):
    """Averages, by any weighting."""

    rule: Literal["nwa"] = "nwa"
    average: Literal["variance", "rho"] = Field(
        "variance", description="what of the deviations is averaged"
    )


class PFedBayes(PosteriorStrategy[PFedBayesMergeSettings]):
    """pFedBayes' server (Zhang et al. 2022): mu = sum w_k mu_k, and var = sum w_k var_k, by size.

    `average: rho` is what the official code does: rho = sum w_k rho_k, with sigma = softplus(rho).
    """

    settings_type: ClassVar[type[MergeSettings]] = PFedBayesMergeSettings

    def merge(self, round: Round) -> Merged:
        merged = super().merge(round)
        if self.settings.merge.average == "variance":
            return merged
        mean = merged.posterior.mean
        rho = torch.zeros(len(mean), dtype=torch.float64)
        for reply, weight in zip(round.replies, round.weights.tolist(), strict=True):
            precision = torch.tensor(reply.posterior.known_precision, dtype=torch.float64)
            rho.add_(inverse_softplus(precision.rsqrt_()), alpha=weight)
        return Merged(Posterior(mean, softplus(rho).pow_(-2).numpy()))
