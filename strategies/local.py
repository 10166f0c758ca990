"""Servers that hold no model which anybody could use as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import MergeSettings, PosteriorStrategy
from fedivon_app.strategies.fedavg import FedAvg
from fedivon_app.strategies.replies import Reply


class Local(PosteriorStrategy):
    """The server of clients that learn for themselves: it gives the first weights, and keeps what it has."""

    has_global_model = False

    class Settings(MergeSettings):
        rule: Literal["none"] = "none"
        weighting: Literal["equal"] = "equal"

    def merge(
        self, replies: Sequence[Reply], weights: np.ndarray, previous: Posterior
    ) -> Posterior:
        return previous


class FedPer(FedAvg):
    """FedPer's and FedRep's server: the bases averaged, by data size. Its head is the first one: clients send it back
    as it came."""

    has_global_model = False
