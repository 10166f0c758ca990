"""Where a run stands after a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.strategies.base import State

LAST_MERGED = "last_merged"  # the name of that table among the arrays of a checkpoint


@dataclass(frozen=True, eq=False)
class Standing:
    """Where a run stands after a round, which is all that it needs to go on from there.

    `state` is what the method's merge left, and `last_merged` says of each partition in which round
    its reply was merged last.
    """

    round: int
    payload: Payload
    state: State = field(default_factory=dict)
    last_merged: Mapping[int, int] = field(default_factory=dict)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all but the round and the payload as arrays, for a checkpoint."""
        table = np.array(sorted(self.last_merged.items()), np.int64).reshape(-1, 2)
        return {LAST_MERGED: table, **self.state}

    @classmethod
    def of(cls, server_round: int, payload: Payload, arrays: State) -> Standing:
        """Return the standing that a checkpoint holds."""
        state = {name: array for name, array in arrays.items() if name != LAST_MERGED}
        table = arrays.get(LAST_MERGED, np.empty((0, 2), np.int64))
        return cls(server_round, payload, state, dict(table.tolist()))
