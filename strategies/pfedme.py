"""pFedMe."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.fedavg import FedAvg, PointMergeSettings
from fedivon_app.strategies.replies import Reply


class PFedMe(FedAvg):
    """pFedMe's server (T Dinh et al. 2020, Algorithm 1): w <- (1 - beta) w + beta average."""

    class Settings(PointMergeSettings):
        beta: float = Field(
            1.0, gt=0, description="how far the server goes towards the clients' average, or beyond"
        )

    def merge(
        self, replies: Sequence[Reply], weights: np.ndarray, previous: Posterior
    ) -> Posterior:
        average = super().merge(replies, weights, previous).mean.astype(np.float64)
        beta = self.settings.merge.beta
        return Posterior((1 - beta) * previous.mean + beta * average)
