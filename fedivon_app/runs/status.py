"""The states that a run can be in, and what interrupts one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path


class RunStatus(StrEnum):
    """How a run ended, or how far it is. The first three are what a summary.json can say."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    RUNNING = "running"
    UNFINISHED = "unfinished"
    UNREADABLE = "unreadable"


class RunInterrupted(KeyboardInterrupt):
    """A person has stopped a run, whose folder is this; it may not be there yet."""

    def __init__(self, folder: Path):
        super().__init__(str(folder))
        self.folder = folder
