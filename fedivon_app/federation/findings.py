"""What a check of a site found: its verdict, and where it is not well, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How well it is with what a check looked at."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True)
class Finding:
    """What one check found, and where it is not well, what to do."""

    about: str
    verdict: Verdict
    found: str
    remedy: str = ""


def ok(about: str, found: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(about, Verdict.OK, found)


def warning(about: str, found: str, remedy: str) -> Finding:
    """Return a finding that something could be better."""
    return Finding(about=about, verdict=Verdict.WARNING, found=found, remedy=remedy)


def failure(about: str, found: str, remedy: str) -> Finding:
    """Return a finding that keeps the site from taking part."""
    return Finding(about=about, verdict=Verdict.FAILURE, found=found, remedy=remedy)
