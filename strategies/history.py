"""A client against its own history: whether it answers as one who learns from data would.

theta is the server's mean, and x_k a client's change of it, divided by the learning rate. Between
two rounds in which a client took part the model has moved by D theta, and the client's answer by
D x_k. Of each return two cosines are noted, and their means over a run's returns are judged.

- Opposition, cos(D x_k, D theta). Who descends a loss is pulled back when the model moves away from
  its data: gradients of a convex loss are monotone, so that <D x_k, D theta> is negative. It is
  positive where somebody sends changes with the wrong sign, its own or those of others.
- Insistence, cos(x_k, D theta). Who learns is content when the model has come its way; who pushes
  one way whatever happens is not. As long as a model is far from what all want, all insist: so it
  is held against the median of all clients.

Besides, the claims of precision are noted (strategies/claims.py), and of methods with duals, where
the server has examples of its own to try them on, where the steps lead (strategies/trial.py).

So a client that lies is told from one whose data are unlike those of all others, which a look at
one round cannot do. At the start of training gradients may grow on their way down, for honest
clients too: a round counts only if the median of its oppositions is clearly negative. Vectors are
kept as sketches (strategies/sketch.py), in which cosines are right to about 0.02.

A client with a dual pushes one way until its dual has made up for it: insistence is no reason for
doubt there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from math import sqrt
from typing import Any

import numpy as np

from fedivon_app.strategies.claims import Claim, excessive
from fedivon_app.strategies.portraits import (
    WITNESSES,
    Doubt,
    Portrait,
    discontented,
    doubts,
    seen_again,
)
from fedivon_app.strategies.sketch import cosine
from fedivon_app.strategies.trial import Way, climbing

SUMS = ("level", "allowance", "unevenness", "opposition", "insistence")
TALLY = ("replies", "returns", "doubted", "left_out", *SUMS)  # what is kept of a client as numbers
SEEN = ("count", "echoes", "likeness", "first", "length")  # and of its portrait
COUNTS = ("replies", "returns", "doubted", "left_out", "count", "echoes")
PREFIX = "history_"  # of the names of a record's arrays in a checkpoint
RETURNS = 2  # of a client before it is judged
PULLED = -0.05  # median opposition below which a round counts
RETURNING = 3  # clients of a round that come back, for the round to count
OPPOSITION = 0.0  # a mean above it, and above the median by APART, is a reason for doubt
APART = 0.2
INSISTENCE = 0.1  # above the median, or, where that is more, this many median deviations:
DEVIATIONS = 2.5
SLACK = 0.2  # of both, over the root of the number of returns


@dataclass(frozen=True, eq=False)
class Past:
    """What is known of a client: its last change and where the model was then, both as sketches.

    `portrait` is how it looks among others, and `way` where its steps lead. `level`, `allowance`
    and `unevenness` of its claims are sums over its `replies`; `opposition` and `insistence` are
    sums over those of its `returns` that count. `doubted` counts the rounds in which it was in
    doubt, and `left_out` is the round since which it is left out, 0 for never.
    """

    change: np.ndarray
    server: np.ndarray
    portrait: Portrait
    way: Way = field(default_factory=Way)
    replies: int = 0
    level: float = 0.0
    allowance: float = 0.0
    unevenness: float = 0.0
    returns: int = 0
    opposition: float = 0.0
    insistence: float = 0.0
    doubted: int = 0
    left_out: int = 0

    @property
    def claim(self) -> Claim:
        """Return the mean of what it has claimed."""
        count = max(self.replies, 1)
        return Claim(
            level=self.level / count,
            allowance=self.allowance / count,
            unevenness=self.unevenness / count,
        )


@dataclass(frozen=True)
class Return:
    """How a client answered when it came back."""

    opposition: float
    insistence: float


def _return(past: Past, change: np.ndarray, server: np.ndarray) -> Return:
    moved = server - past.server
    return Return(opposition=cosine(change - past.change, moved), insistence=cosine(change, moved))


@dataclass(frozen=True, eq=False)
class History:
    """The run-long record of all clients, by partition; a value, as all that a run carries on."""

    clients: Mapping[int, Past] = field(default_factory=dict)

    @property
    def left_out(self) -> frozenset[int]:
        """Return the partitions that are left out of the rest of the run."""
        return frozenset(p for p, past in self.clients.items() if past.left_out)

    def seen(
        self,
        changes: Mapping[int, np.ndarray],
        server: np.ndarray,
        claims: Mapping[int, Claim] | None = None,
        slopes: Mapping[int, float] | None = None,
    ) -> History:
        """Return the record after a round, in which these clients sent and claimed this.

        `slopes` are what their steps raise the loss by, where that is known.
        """
        said = claims or {}
        steps = slopes or {}
        known = self.clients
        noted = {p: _return(known[p], changes[p], server) for p in changes if p in known}
        pulled = [one.opposition for one in noted.values()]
        counts = len(pulled) >= RETURNING and float(np.median(pulled)) < PULLED
        portraits = seen_again({p: past.portrait for p, past in known.items()}, changes)
        now = dict(known)
        for partition, change in changes.items():
            past = known.get(partition) or Past(change, server, portraits[partition])
            if counts and partition in noted:
                past = replace(
                    past,
                    returns=past.returns + 1,
                    opposition=past.opposition + noted[partition].opposition,
                    insistence=past.insistence + noted[partition].insistence,
                )
            claim = said.get(partition, Claim())
            now[partition] = replace(
                past,
                change=change,
                server=server,
                portrait=portraits[partition],
                way=past.way.gone(steps[partition]) if partition in steps else past.way,
                replies=past.replies + 1,
                level=past.level + claim.level,
                allowance=past.allowance + claim.allowance,
                unevenness=past.unevenness + claim.unevenness,
            )
        return History(now)

    def doubts(self, *, coupled: bool = False) -> dict[int, Doubt]:
        """Return who is in doubt, and why; `coupled`: clients have duals or controls."""
        present = self._present
        found = doubts({p: past.portrait for p, past in present.items()})
        claims = excessive({p: past.claim for p, past in present.items() if past.replies})
        uphill = climbing({p: past.way for p, past in present.items()})
        return found | uphill | claims | self._of_answers(present, insist=not coupled)

    def discontented(self) -> frozenset[int]:
        """Return whom the model suits less and less."""
        return discontented({p: past.portrait for p, past in self._present.items()})

    @property
    def _present(self) -> dict[int, Past]:
        return {p: past for p, past in self.clients.items() if not past.left_out}

    @staticmethod
    def _of_answers(present: Mapping[int, Past], *, insist: bool) -> dict[int, Doubt]:
        means = {
            p: Return(past.opposition / past.returns, past.insistence / past.returns)
            for p, past in present.items()
            if past.returns
        }
        if len(means) < WITNESSES:
            return {}
        usual_opposition = float(np.median([one.opposition for one in means.values()]))
        insisting = np.array([one.insistence for one in means.values()])
        usual_insistence = float(np.median(insisting))
        spread = float(np.median(np.abs(insisting - usual_insistence)))
        apart = max(INSISTENCE, DEVIATIONS * spread)
        found = {}
        for partition, mean in means.items():
            returns = present[partition].returns
            if returns < RETURNS:
                continue
            slack = SLACK / sqrt(returns)
            opposition = max(OPPOSITION, usual_opposition + APART) + slack
            insistence = usual_insistence + apart + slack
            if mean.opposition > opposition:
                found[partition] = Doubt("opposition", mean.opposition, opposition)
            elif insist and mean.insistence > insistence:
                found[partition] = Doubt("insistence", mean.insistence, insistence)
        return found

    def judged(self, doubted: frozenset[int], server_round: int, after: int) -> History:
        """Return the record in which these clients were in doubt once more.

        Who has been so in `after` rounds is left out from now on.
        """
        now = dict(self.clients)
        for partition in doubted:
            past = now[partition]
            times = past.doubted + 1
            gone = past.left_out or (server_round if times >= after else 0)
            now[partition] = replace(past, doubted=times, left_out=gone)
        return History(now)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the record as arrays, for a checkpoint; none where nobody is known."""
        if not self.clients:
            return {}
        pasts = list(self.clients.values())
        tallies = [
            [
                p,
                *(getattr(past, name) for name in TALLY),
                *(getattr(past.portrait, name) for name in SEEN),
            ]
            for p, past in self.clients.items()
        ]
        return {
            f"{PREFIX}changes": np.stack([past.change for past in pasts]),
            f"{PREFIX}servers": np.stack([past.server for past in pasts]),
            f"{PREFIX}faces": np.stack([past.portrait.face for past in pasts]),
            f"{PREFIX}ways": np.array([astuple(past.way) for past in pasts], np.float64),
            f"{PREFIX}tallies": np.array(tallies, np.float64),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> History:
        """Return the record that a checkpoint holds."""
        tallies = arrays.get(f"{PREFIX}tallies")
        if tallies is None:
            return cls()
        changes = arrays[f"{PREFIX}changes"]
        servers = arrays[f"{PREFIX}servers"]
        faces = arrays[f"{PREFIX}faces"]
        ways = arrays[f"{PREFIX}ways"].tolist()
        clients = {}
        for row, (partition, *values) in enumerate(tallies.tolist()):
            told: dict[str, Any] = {
                name: int(value) if name in COUNTS else value
                for name, value in zip((*TALLY, *SEEN), values, strict=True)
            }
            portrait = Portrait(faces[row], **{name: told.pop(name) for name in SEEN})
            up, down, count = ways[row]
            way = Way(up, down, count=int(count))
            clients[int(partition)] = Past(changes[row], servers[row], portrait, way, **told)
        return cls(clients)
