"""The messages of a run: to whom they go, and what each client must know of its task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedivon_app.core.instructions import Instructions
from fedivon_app.core.settings import AnySettings
from fedivon_app.strategies.downlink import Downlink
from fedivon_app.strategies.messages import Contents
from fedivon_app.strategies.replies import to_record
from fedivon_app.strategies.roll_call import Node, RollCall
from fedivon_app.strategies.standing import Standing


@dataclass(frozen=True)
class Asked:
    """Whom a round asked, and which partitions of them are to report."""

    nodes: Sequence[Node] = ()
    reporting: frozenset[int] = frozenset()

    @property
    def partition_of(self) -> dict[int, int]:
        """Return the partitions by node id."""
        return {node.node_id: node.partition for node in self.nodes}


class Letters:
    """Writes the messages of a run, as it stands.

    `standing` is that of the last checkpoint, to which clients go back when a run is resumed.
    """

    def __init__(
        self,
        settings: AnySettings,
        roll_call: RollCall,
        downlink: Downlink,
        *,
        standing: Standing,
        run_folder: Path | None = None,
    ):
        self._settings = settings
        self._roll_call = roll_call
        self._downlink = downlink
        self._saved_merged = dict(standing.last_merged)  # as the last checkpoint has it
        self._run_folder = run_folder
        self._contents = Contents(settings)

    def saved(self, standing: Standing) -> None:
        """Take note that a checkpoint of this standing was written."""
        self._saved_merged = dict(standing.last_merged)

    def question(self, server_round: int, standing: Standing) -> RecordDict:
        """Return what is in the messages of a roll call."""
        return self._contents(self.for_all(Instructions(round=server_round), standing))

    def write(
        self,
        kind: str,
        told: Instructions,
        *,
        asked: Asked,
        standing: Standing,
        config: ConfigRecord,
        arrays: ArrayRecord,
    ) -> list[Message]:
        """Return a message for each node that is asked, with what it must know of its task."""
        messages = []
        told = self.for_all(told, standing)
        for node in asked.nodes:
            parcel = self._downlink.parcel(standing.payload, node.node_id)
            own = replace(
                told,
                last_merged=standing.last_merged.get(node.partition, 0),
                last_saved=self._saved_merged.get(node.partition, 0),
                report=node.partition in asked.reporting,
                sent=parcel.sent,
                held=parcel.held,
            )
            record = arrays if parcel.arrays is None else to_record(parcel.arrays)
            messages.append(Message(self._contents(own, config, record), node.node_id, kind))
        return messages

    def for_all(self, told: Instructions, standing: Standing) -> Instructions:
        """Add what clients must know of one another, and of where they keep things."""
        folder = self._run_folder
        shared = folder is not None and self._settings.run.client_state == "run"
        return replace(
            told,
            run=folder.name if folder else "run",
            client_state=str(folder / "clients") if folder and shared else None,
            first=not standing.last_merged,
            total_examples=sum(one.num_train for one in self._roll_call.nodes.values()),
        )
