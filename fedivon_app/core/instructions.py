"""What the server tells a client with a message, besides the posterior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

Config = dict[str, Any]  # plain values, fit for a Flower ConfigRecord


@dataclass(frozen=True)
class Instructions:
    """One message's instructions to one client.

    `first` says that nothing has been merged yet, so that what is sent is where the run begins.
    `run` names the run, and `client_state` the folder in which simulated clients keep their state
    (None: each on its own disk). `last_merged` and `last_saved` are the rounds after which the
    server, and its last checkpoint, count on what the client kept: 0 before the first. `report`
    says whether the client sends its posterior, `score_gm` whether the global model is one that
    can be scored. Where posteriors are coded, `sent` is the digest of what the message is to be
    decoded to, and `held` that of what it changes (None: it goes whole).
    """

    round: int
    learning_rate: float = 0.0
    first: bool = False
    run: str = "run"
    client_state: str | None = None
    total_examples: int = 0
    last_merged: int = 0
    last_saved: int = 0
    report: bool = True
    score_gm: bool = True
    sent: str | None = None
    held: str | None = None

    def to_config(self) -> Config:
        """Return the instructions as they travel: names with hyphens, and nothing that is None."""
        values = {field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Instructions:
        """Return the inverse of `to_config`; other keys are left alone."""
        known = {field.name.replace("_", "-"): field.name for field in fields(cls)}
        return cls(**{known[key]: value for key, value in config.items() if key in known})
