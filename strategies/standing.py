"""Where a run stands after a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.strategies.base import State
from fedivon_app.strategies.history import PREFIX, History

LAST_MERGED = "last_merged"  # the name of that table among the arrays of a checkpoint
MOVED = "robust_moved"  # and of the last move


@dataclass(frozen=True, eq=False)
class Standing:
    """Where a run stands after a round, which is all that it needs to go on from there.

    `state` is what the method's merge left, `last_merged` says of each partition in which round its
    reply was merged last, and `history` is the record of how the clients have answered. `moved` is
    how far the last merge moved the mean, where a robust merge remembers it.
    """

    round: int
    payload: Payload
    state: State = field(default_factory=dict)
    last_merged: Mapping[int, int] = field(default_factory=dict)
    history: History = field(default_factory=History)
    moved: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all but the round and the payload as arrays, for a checkpoint."""
        table = np.array(sorted(self.last_merged.items()), np.int64).reshape(-1, 2)
        moved = {} if self.moved is None else {MOVED: self.moved}
        return {LAST_MERGED: table, **moved, **self.history.arrays(), **self.state}

    @classmethod
    def of(cls, server_round: int, payload: Payload, arrays: State) -> Standing:
        """Return the standing that a checkpoint holds."""
        state = {
            name: array
            for name, array in arrays.items()
            if name not in (LAST_MERGED, MOVED) and not name.startswith(PREFIX)
        }
        table = arrays.get(LAST_MERGED, np.empty((0, 2), np.int64))
        return cls(
            round=server_round,
            payload=payload,
            state=state,
            last_merged=dict(table.tolist()),
            history=History.of(arrays),
            moved=arrays.get(MOVED),
        )
