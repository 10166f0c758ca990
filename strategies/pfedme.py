"""pFedMe."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.search_range import even_range, search
from fedivon_app.strategies.base import Merged, Round, Total
from fedivon_app.strategies.fedavg import PointMergeSettings, PointStrategy


class PFedMeMergeSettings(PointMergeSettings):
    """FedAvg's, and how far the server goes."""

    beta: float = Field(
        1.0,
        gt=0,
        description="how far the server goes towards the clients' average, or beyond",
        json_schema_extra=search(even_range(0.5, 2.0)),
    )


class PFedMe(PointStrategy[PFedMeMergeSettings]):
    """pFedMe's server (T Dinh et al. 2020, Algorithm 1): w <- (1 - beta) w + beta average."""

    settings_type: ClassVar[type[MergeSettings]] = PFedMeMergeSettings

    def conclude(self, total: Total, round: Round) -> Merged:
        beta = self.settings.merge.beta
        average = super().conclude(total, round).posterior.mean.astype(np.float64)
        return Merged(Posterior((1 - beta) * round.previous.posterior.mean + beta * average))
