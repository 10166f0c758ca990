"""Attacks as a setting: who of a simulated federation lies, and how."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedivon_app.core.section import Section

STREAM = 0x6C696172  # of the seed: who lies

Kind = Literal[
    "none",
    "sign-flip",
    "inner-product",
    "alie",
    "mimic",
    "noise",
    "label-flip",
    "backdoor",
    "inflated-precision",
    "collapsed-variance",
    "poisoned-prior",
    "claimed-size",
    "combined",
    "disguised",
]
# How strong an attack is unless the settings tell.
STRENGTHS: dict[str, float] = {
    "sign-flip": 4.0,
    "inner-product": 2.0,
    "alie": 1.5,
    "mimic": 1.0,
    "noise": 10.0,
    "label-flip": 1.0,
    "backdoor": 0.5,
    "inflated-precision": 1e3,
    "collapsed-variance": 1e3,
    "poisoned-prior": 3.0,
    "claimed-size": 50.0,
    "combined": 1.0,
    "disguised": 0.5,
}
ON_PRECISION = ("inflated-precision", "collapsed-variance", "poisoned-prior")
ON_DATA = ("label-flip", "backdoor")  # honest training on poisoned examples
SEARCHED = ("sign-flip", "inner-product", "alie", "noise", "combined", "disguised")


class AttackSettings(Section):
    """Clients of a simulation that lie, to see what becomes of a run; see docs/threats.md."""

    kind: Kind = Field("none", description="what the liars do")
    share: float = Field(
        0.0, ge=0, le=1, description="share of all clients that lie, chosen by the seed"
    )
    clients: tuple[int, ...] = Field(
        (), description="the partitions that lie, instead of a share of all"
    )
    strength: float | Literal["worst"] | None = Field(
        None,
        description="how far the lie goes, in units of the attack; none: that of the attack; "
        "`worst`: in each round what harms the merge most, found by trying it",
    )
    target: int = Field(0, ge=0, description="backdoor: the class that the trigger leads to")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "none":
            return self
        if self.strength == "worst" and self.kind not in SEARCHED:
            raise ValueError(f"strength worst is for the kinds {', '.join(SEARCHED)}")
        if isinstance(self.strength, float) and self.strength <= 0:
            raise ValueError("the strength of an attack is above 0")
        if self.clients and self.share:
            raise ValueError("say either share or clients: who lies is one or the other")
        return self

    @property
    def value(self) -> float:
        """Return the strength as a number; that of the attack where none is set."""
        given = self.strength
        return STRENGTHS.get(self.kind, 1.0) if given in (None, "worst") else float(given)

    def liars(self, num_clients: int, seed: int) -> frozenset[int]:
        """Return the partitions that lie."""
        if self.kind == "none":
            return frozenset()
        if self.clients:
            return frozenset(self.clients)
        order = np.random.default_rng([seed, STREAM]).permutation(num_clients)
        return frozenset(order[: round(self.share * num_clients)].tolist())
