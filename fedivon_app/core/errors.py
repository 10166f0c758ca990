"""What can go wrong, as kinds: errors that a person may see, and why a reply is of no use.

    FedIvonError
      UserError          somebody asked for what cannot be: SettingsError, DataError
      FlowerError        Flower itself did not do what was asked
      RunError           a run cannot go on: DivergenceError where its numbers left all bounds
        Refused          a site does not do what the server asks, for its own privacy
        SumLost          a secure sum cannot be known, and the round goes without it

The text of each is written for the person who reads it, and shown without a traceback.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FedIvonError(Exception):
    """The root of all errors that are shown to a person as they are."""


class UserError(FedIvonError, ValueError):
    """Something that was asked for cannot be.

    The text says what was wrong and what would be right.
    """


class SettingsError(UserError):
    """A setting, or a combination of settings, is wrong."""


class DataError(UserError):
    """Data are wrong.

    The text names the data set or the file, the fault and what would be right.
    """


class FlowerError(FedIvonError, RuntimeError):
    """Flower itself did not do what was asked."""


class RunError(FedIvonError, RuntimeError):
    """A run cannot go on; the text says in which round, by whose fault and why."""


class DivergenceError(RunError):
    """A run's numbers are no longer finite, or have grown beyond all bounds."""


class Refused(RunError):
    """What the server asks of a site would reveal too much, and so the site does not do it."""


class SumLost(RunError):
    """Too few sites stayed until a secure sum was known, or what they told gives none."""


class FaultKind(Enum):
    """The kinds of reasons for which a reply is not merged."""

    CLIENT_ERROR = "the client raised an error"
    NO_REPLY = "no reply came in time"
    MALFORMED = "a part is missing, or has another name, kind or shape"
    NOT_FINITE = "a number is not finite"
    NOT_POSITIVE = "a precision is not positive"
    OUT_OF_BOUNDS = "it claims more than the settings allow"


@dataclass(frozen=True)
class Fault:
    """Why something must not be merged: its kind, which code decides by, and a text for people.

    Where a fault lies in one array of a posterior, `where` is that array's name.
    """

    kind: FaultKind
    text: str
    where: str = ""

    def __str__(self) -> str:
        return self.text


class BadReply(ValueError):
    """Raised while a reply is read, with the fault that was found in it."""

    def __init__(self, fault: Fault):
        super().__init__(fault.text)
        self.fault = fault
