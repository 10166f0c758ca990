"""Where a client keeps things in a run: in the run's folder, or on its own disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flwr.app import RecordDict

from fedivon_app.clients.received import Received
from fedivon_app.clients.state import Memory
from fedivon_app.core.instructions import Instructions


@dataclass(frozen=True, eq=False)
class Place:
    """The places of the client with this partition.

    `state` is Flower's, which lasts from round to round, `root` the folder on the client's disk.
    Of what all clients of a run's folder were sent, the `most` newest payloads are kept.
    """

    state: RecordDict
    root: Path
    partition: int
    most: int

    def memory(self, told: Instructions) -> Memory:
        """Return where the client keeps what lasts from round to round.

        That is in the run's folder if the server says where, else on the client's own disk.
        """
        if told.client_state:
            return Memory(None, Path(told.client_state) / self._name)
        return Memory(self.state, self.root / told.run / self._name)

    def received(self, told: Instructions) -> Received:
        """Return where the client keeps what it was sent.

        In the run's folder that is one place for all clients, for they were sent the same.
        """
        if told.client_state:
            return Received(Path(told.client_state) / "received", self.most)
        return Received(self.root / told.run / self._name / "received", 1)

    @property
    def _name(self) -> str:
        return f"partition-{self.partition}"
