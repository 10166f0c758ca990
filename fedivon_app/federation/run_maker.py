"""What makes runs of this project's app, whatever it is, and what becomes of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fedivon_app.runs.status import RunStatus

RunConfig = Mapping[str, str | bool | int | float]


@dataclass(frozen=True)
class RunEnd:
    """What a run came to, by Flower's account: completed, failed or stopped, and why."""

    status: RunStatus
    text: str = ""

    @property
    def failed(self) -> bool:
        """Whether the run did not come to its own end: it failed, or somebody stopped it."""
        return self.status is not RunStatus.COMPLETED


class RunMaker(Protocol):
    """Makes runs of this project's app, one at a time."""

    def run(
        self,
        config: RunConfig,
        nodes: int | None = None,
        cpus: float = 1,
        show: Callable[[str], None] = print,
    ) -> RunEnd:
        """Start a run, show its progress line by line, and return what it came to."""
