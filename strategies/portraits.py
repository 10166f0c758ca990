"""A client among those of its round: what sets it apart, and how far it would go.

Three measures, on the changes of a round as sketches. For the first two they have unit length.

- Likeness. What sets a client apart from the average of its round is what its data have and others
  have not, and that stays the same: its cosine with the client's portrait, a fading sum of what set
  it apart before, is high. Noise, and lies that are made of the replies of others, are like nobody.
  Where data are alike, nobody has a face, and the median of all clients tells.
- Echo. No two that learn from data of their own, by chance, are set apart by the same. Colluders
  who send one lie are, in the rounds in which two of them meet. One whom others copy is more like
  itself than they are, and no echo.
- Discontent. A model that learns from all comes to suit each, and changes get shorter. Whose data
  contradict those of most, as flipped labels do, finds the model as wrong as ever: its change grows
  against the median of its round. That is held against its own first ones, and against the median
  of all clients. But an honest client whose data are rare is discontent too. So this is no reason
  to leave anybody out: who is discontent counts less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np

from fedivon_app.strategies.robust import echoes
from fedivon_app.strategies.sketch import cosine

WITNESSES = 5  # clients at least among whom anybody is judged
FIRST = 3  # replies before a client is judged, by which its own length is known
FADING = np.float32(0.8)  # how much of a portrait is kept when a reply is added to it
UNLIKENESS = 0.25  # of a client to itself, above the median
SLACK = 0.2  # of that, over the root of the number of replies
SAME = 0.95  # cosine of what sets two apart, above which one is the other's echo
ORIGINAL = 0.1  # unlikeness by which others exceed the one whom they copy
ECHOES = 0.25  # share of a client's replies that may be echoes
MEETINGS = 6  # replies before echoes are counted: who copies others is known as unlike itself then
DISCONTENT = 0.6  # above the median, or, where that is more, this many median deviations:
SPREADS = 3.5
LONGEST = 0.3  # that a client's own length may be above the median, as a logarithm
PACE = 0.3  # of what a reply counts in the length of late
LESS = 0.3  # what a discontent client counts


@dataclass(frozen=True, eq=False)
class Look:
    """A reply among those of its round.

    `apart` is what sets it apart, `length` the logarithm of its length over the median, and `same`
    has those who are set apart by the same.
    """

    apart: np.ndarray
    length: float
    same: frozenset[int] = frozenset()


def looks(changes: Mapping[int, np.ndarray]) -> dict[int, Look]:
    """Return how the changes of a round look; nothing where there are too few of them."""
    lengths = {p: float(np.linalg.norm(change)) for p, change in changes.items()}
    moving = [p for p in changes if lengths[p] > 0]
    if len(moving) < WITNESSES:
        return {}
    ways = np.stack([changes[p] / lengths[p] for p in moving])
    apart = ways - ways.mean(axis=0)
    exact = ways.astype(np.float64)  # differences of products lose digits
    same = echoes(exact @ exact.T, SAME)
    usual = float(np.median([log(lengths[p]) for p in moving]))
    return {
        p: Look(
            apart[k],
            length=log(lengths[p]) - usual,
            same=frozenset(moving[j] for j in np.flatnonzero(same[k]).tolist()),
        )
        for k, p in enumerate(moving)
    }


@dataclass(frozen=True, eq=False)
class Portrait:
    """What is known of a client's looks, `count` in number; `face` is the fading sum.

    `likeness` is the sum over all looks but the first, `echoes` counts those after the first
    `FIRST`, `first` is the mean length of these and `length` that of late.
    """

    face: np.ndarray
    count: int = 0
    likeness: float = 0.0
    echoes: int = 0
    first: float = 0.0
    length: float = 0.0

    def seen(self, look: Look, *, echo: bool = False) -> Portrait:
        """Return the portrait after one more look, at which it was an echo or not."""
        early = self.count < FIRST
        first = (self.first * self.count + look.length) / (self.count + 1) if early else self.first
        return replace(
            self,
            face=FADING * self.face + look.apart,
            count=self.count + 1,
            likeness=self.likeness + (cosine(look.apart, self.face) if self.count else 0.0),
            echoes=self.echoes + echo,
            first=first,
            length=first if early else self.length + PACE * (look.length - self.length),
        )

    @property
    def unlikeness(self) -> float:
        """Return one less its mean likeness to itself, and 1 before there is any."""
        return 1 - self.likeness / max(self.count - 1, 1)

    @property
    def discontent(self) -> float:
        """Return how much longer its changes have become, against the medians of their rounds."""
        return self.length - min(self.first, LONGEST)


def seen_again(
    portraits: Mapping[int, Portrait], changes: Mapping[int, np.ndarray]
) -> dict[int, Portrait]:
    """Return the portraits of those who sent these changes, after the round."""
    found = looks(changes)
    known = {p: portraits.get(p) or Portrait(np.zeros_like(changes[p])) for p in changes}
    after = {}
    for partition, portrait in known.items():
        look = found.get(partition)
        if look is None:
            after[partition] = portrait
            continue
        # Of two that say the same, the one that is clearly more like itself is no echo.
        most = portrait.unlikeness + ORIGINAL
        others = [known[other] for other in look.same]
        echo = any(one.count >= FIRST and one.unlikeness < most for one in others)
        after[partition] = portrait.seen(look, echo=echo and portrait.count >= FIRST)
    return after


@dataclass(frozen=True)
class Doubt:
    """Why a client is in doubt: the name of what it does, its mean, and what would be the most."""

    what: str
    value: float
    most: float

    def __str__(self) -> str:
        return f"its {self.what} over the run is {self.value:.2f}, and at most {self.most:.2f}"


def doubts(portraits: Mapping[int, Portrait]) -> dict[int, Doubt]:
    """Return who is in doubt by its looks, and why."""
    known = _known(portraits)
    if len(known) < WITNESSES:
        return {}
    usual = float(np.median([portrait.unlikeness for portrait in known.values()]))
    found = {}
    for partition, portrait in known.items():
        most = usual + UNLIKENESS + SLACK / sqrt(portrait.count - 1)
        echoes = portrait.echoes / max(portrait.count - FIRST, 1)
        if portrait.unlikeness > most:
            found[partition] = Doubt("unlikeness to itself", portrait.unlikeness, most)
        elif portrait.count >= MEETINGS and echoes > ECHOES:
            found[partition] = Doubt("share of echoes", echoes, ECHOES)
    return found


def discontented(portraits: Mapping[int, Portrait]) -> frozenset[int]:
    """Return who finds the model less and less to its liking, compared with all others."""
    known = _known(portraits)
    if len(known) < WITNESSES:
        return frozenset()
    values = np.array([portrait.discontent for portrait in known.values()])
    usual = float(np.median(values))
    spread = float(np.median(np.abs(values - usual)))
    most = usual + max(DISCONTENT, SPREADS * spread)
    return frozenset(p for p, value in zip(known, values, strict=True) if value > most)


def _known(portraits: Mapping[int, Portrait]) -> dict[int, Portrait]:
    return {p: portrait for p, portrait in portraits.items() if portrait.count >= FIRST}
