"""Local learning: a client that learns from nobody."""

from __future__ import annotations

from fedivon_app.clients.parts import OwnPartClient, OwnPartSettings
from fedivon_app.clients.task import Learned, Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Part
from fedivon_app.core.merge_settings import MergeSettings


class LocalClient(OwnPartClient[OwnPartSettings, MergeSettings]):
    """Every client for itself: it goes on from its own PM.

    It sends back what it received, batch norm's statistics included.
    """

    @property
    def own(self) -> Part:
        return slice(None)

    def train(self, start: Payload, task: Task) -> Learned:
        if (kept := task.personal) is not None:
            self.flat.load_buffers(kept.buffers)
        echo = super().train(start, task)
        self.flat.load_buffers(start.buffers)
        return echo
