"""Clients that learn from nobody."""

from __future__ import annotations

from fedivon_app.clients.base import Task
from fedivon_app.clients.parts import OwnPartClient
from fedivon_app.clients.state import recall_personal
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior


class LocalClient(OwnPartClient):
    """Every client for itself: it goes on from its own PM, and sends back what it received, batch norm's statistics
    included."""

    own = slice(None)

    def train(self, start: Payload, task: Task) -> Posterior:
        if (kept := recall_personal(task.memory)) is not None:
            self.flat.load_buffers(kept.buffers)
        echo = super().train(start, task)
        self.flat.load_buffers(start.buffers)
        return echo
