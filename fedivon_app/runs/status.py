"""The states that a run can be in."""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """How a run ended, or how far it is. The first three are what a summary.json can say."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    RUNNING = "running"
    UNFINISHED = "unfinished"
    UNREADABLE = "unreadable"
