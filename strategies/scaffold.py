"""SCAFFOLD."""

from __future__ import annotations

import numpy as np

from fedivon_app.strategies.base import Merged, Round
from fedivon_app.strategies.fedavg import PointMergeSettings, PointStrategy


class Scaffold(PointStrategy[PointMergeSettings]):
    """SCAFFOLD's server (Karimireddy et al. 2020, Algorithm 1, global step 1): points averaged.

    Its control moves by the mean of what theirs gained, times the share of clients that were there.
    """

    @property
    def takes_replies_whole(self) -> bool:
        return True

    def initial_extras(self, mean: np.ndarray) -> dict[str, np.ndarray]:
        return {"control": np.zeros_like(mean)}

    def merge(self, round: Round) -> Merged:
        gain = np.zeros(len(round.previous.posterior))
        for reply in round.replies:  # one at a time
            gain += reply.payload.extras["control"].astype(np.float64)
        control = round.previous.extras["control"] + gain / round.num_clients
        merged = super().merge(round)
        return Merged(merged.posterior, extras={"control": control.astype(np.float32)})
