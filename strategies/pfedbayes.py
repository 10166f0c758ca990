"""pFedBayes."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import softplus

from fedivon_app.core.codec import Payload
from fedivon_app.core.meanfield import inverse_softplus
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import (
    Merged,
    PosteriorMergeSettings,
    PosteriorStrategy,
    Round,
    Total,
    contributed,
)
from fedivon_app.strategies.summing import Own, Summand


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

    @property
    def _by_rho(self) -> bool:
        return self.settings.merge.average == "rho"

    def contribution(self, own: Own, sent: Payload) -> dict[str, np.ndarray]:
        found = super().contribution(own, sent)
        if self._by_rho:
            precision = torch.tensor(own.posterior.known_precision, dtype=torch.float64)
            found["second"] = own.weight * inverse_softplus(precision.rsqrt_()).numpy()
        return found

    def summands(self, sent: Payload) -> dict[str, Summand]:
        found = super().summands(sent)
        return found | {"second": Summand()} if self._by_rho else found

    def total(self, round: Round) -> Total:
        return contributed(self, round) if self._by_rho else super().total(round)

    def conclude(self, total: Total, round: Round) -> Merged:
        if not self._by_rho:
            return super().conclude(total, round)
        mean = round.previous.posterior.mean + total.sums["first"]
        rho = torch.from_numpy(total.sums["second"])
        return Merged(Posterior(mean, softplus(rho).pow_(-2).numpy()))
