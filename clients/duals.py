"""A client's dual in a round: what it kept, how much of it is allowed, and the step at the end."""

from __future__ import annotations

import numpy as np

from fedivon_app.clients.task import Task
from fedivon_app.core.duality import bounded, dual_step, reference
from fedivon_app.core.merge_settings import BayesAdmmMergeSettings
from fedivon_app.core.posterior import Posterior


class Duals:
    """The dual (v, u) of core/duality.py, from what the client kept.

    `server` is what the client is tied to. `u` is bounded for use in the client's problem; what is
    kept is not, for the server follows the same sum.
    """

    def __init__(self, start: Posterior, task: Task, merge: BayesAdmmMergeSettings):
        self.merge = merge
        self.server = reference(start, merge.prior_precision, first=task.first)
        zeros = np.zeros(len(start))
        self.v = task.memory.get("v", zeros)
        self._u = task.memory.get("u", zeros)
        self.u, self.num_bounded = bounded(self._u, self.server.known_precision, merge.rho)

    def after(self, own: Posterior) -> dict[str, np.ndarray]:
        """Return the dual that the client keeps after its posterior's step."""
        more_v, more_u = dual_step(own, self.server, self.merge.dual_step, self.merge.dual_space)
        return {"v": self.v + more_v, "u": self._u + more_u}
