"""SCAFFOLD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.strategies.fedavg import FedAvg
from fedivon_app.strategies.replies import Reply


class Scaffold(FedAvg):
    """SCAFFOLD's server (Karimireddy et al. 2020, Algorithm 1, global step 1): the clients' points averaged.

    Its control moves by the mean of what theirs gained, times the share of clients that were there.
    """

    def initial_extras(self, mean: np.ndarray) -> dict[str, np.ndarray]:
        return {"control": np.zeros_like(mean)}

    def merge_extras(self, replies: Sequence[Reply], previous: Payload) -> Mapping[str, np.ndarray]:
        clients = self.settings.data.clients or len(self.roll_call.nodes)
        gain = sum(
            reply.payload.extras["control"].astype(np.float64) for reply in replies
        )  # one at a time
        return {"control": (previous.extras["control"] + gain / clients).astype(np.float32)}
