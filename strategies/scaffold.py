"""SCAFFOLD."""

from __future__ import annotations

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.strategies.base import Merged, Round, Total, contributed
from fedivon_app.strategies.fedavg import PointMergeSettings, PointStrategy
from fedivon_app.strategies.summing import Own, Summand


class Scaffold(PointStrategy[PointMergeSettings]):
    """SCAFFOLD's server (Karimireddy et al. 2020, Algorithm 1, global step 1): points averaged.

    Its control moves by the mean of what theirs gained, times the share of clients that were there.
    """

    @property
    def takes_replies_whole(self) -> bool:
        return True

    def initial_extras(self, mean: np.ndarray) -> dict[str, np.ndarray]:
        return {"control": np.zeros_like(mean)}

    def contribution(self, own: Own, sent: Payload) -> dict[str, np.ndarray]:
        gain = own.payload.extras["control"].astype(np.float64)
        return super().contribution(own, sent) | {"control": gain}

    def summands(self, sent: Payload) -> dict[str, Summand]:
        return super().summands(sent) | {"control": Summand(degree=0)}

    def total(self, round: Round) -> Total:
        return contributed(self, round)

    def conclude(self, total: Total, round: Round) -> Merged:
        gain = total.sums["control"]
        control = round.previous.extras["control"] + gain / round.num_clients
        merged = super().conclude(total, round)
        return Merged(merged.posterior, extras={"control": control.astype(np.float32)})
