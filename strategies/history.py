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

Two more measures look at a client among those of its round, whose changes have unit length for the
first of them.

- Likeness. What sets a client apart from the average of its round is what its data have and others
  have not, and that stays the same: its cosine with the client's portrait, a fading sum of what set
  it apart before. Noise, and lies that are made of the replies of others, are like nobody. Where
  data are alike, nobody has a face, and the median of all clients tells.
- Discontent. A model that learns from all comes to suit each, and changes get shorter. Whose data
  contradict those of most, as flipped labels do, finds the model as wrong as ever: its change grows
  against the median of its round. That is held against how long its first ones were, and against
  the median of all clients.

Besides, the claims are noted: the mean of log(s_k / s) over the weights, s being the precision that
was sent. That is held against the median of all clients, in both directions and from the first
reply on; who has c times the median's data may claim c times as much, and need not.

So a client that lies is told from one whose data are unlike those of all others, which a look at
one round cannot do. At the start of training gradients may grow on their way down, for honest
clients too: a round counts only if the median of its oppositions is clearly negative. Vectors are
kept as sketches (strategies/sketch.py), in which cosines are right to about 0.02.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log, sqrt

import numpy as np

from fedivon_app.strategies.sketch import cosine

REALS = ("claims", "allowances", "opposition", "insistence", "likeness", "first", "length")
COUNTS = ("replies", "returns", "measured", "doubted", "left_out")
TALLY = (*COUNTS, *REALS)  # what is kept of a client as numbers
PREFIX = "history_"  # of the names of a record's arrays in a checkpoint
RETURNS = 2  # of a client before it is judged
PULLED = -0.05  # median opposition below which a round counts
RETURNING = 3  # clients of a round that come back, for the round to count
WITNESSES = 5  # clients at least among whom anybody is judged
OPPOSITION = 0.0  # a mean above it, and above the median by APART, is a reason for doubt
APART = 0.2
INSISTENCE = 0.1  # above the median, or, where that is more, this many median deviations:
DEVIATIONS = 2.5
CLAIM = log(10)  # away from the median
SLACK = 0.2  # of these and of the next, over the root of the number of returns
UNLIKENESS = 0.25  # of a client to itself, above the median
FADING = 0.8  # how much of a portrait is kept when a reply is added to it
DISCONTENT = 0.45  # above the median, or, where that is more, this many median deviations:
SPREADS = 3.0
FIRST = 3  # replies by which a client's own length is known
LONGEST = 0.3  # that a client's own length may be above the median, as a logarithm
PACE = 0.3  # of what a reply counts in the length of late


@dataclass(frozen=True, eq=False)
class Past:
    """What is known of a client: its last change and where the model was then, both as sketches.

    `portrait` is what sets it apart, as a sketch too. `claims` and `allowances`, what its data
    allow it to claim more, are sums over its `replies`; `opposition` and `insistence` are sums over
    those of its `returns` that count. Of its replies in rounds with witnesses, `measured` in
    number, `likeness` is the sum over all but the first, `first` the mean length of the first ones
    and `length` that of late. `doubted` counts the rounds in which it was in doubt, and `left_out`
    is the round since which it is left out, 0 for never.
    """

    change: np.ndarray
    server: np.ndarray
    portrait: np.ndarray
    replies: int = 0
    measured: int = 0
    likeness: float = 0.0
    first: float = 0.0
    length: float = 0.0
    claims: float = 0.0
    allowances: float = 0.0
    returns: int = 0
    opposition: float = 0.0
    insistence: float = 0.0
    doubted: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class Claim:
    """How much more precise a client says to be than what it was sent, and what its data allow."""

    value: float = 0.0
    allowance: float = 0.0


@dataclass(frozen=True)
class Return:
    """How a client answered when it came back."""

    opposition: float
    insistence: float


def _return(past: Past, change: np.ndarray, server: np.ndarray) -> Return:
    moved = server - past.server
    return Return(opposition=cosine(change - past.change, moved), insistence=cosine(change, moved))


@dataclass(frozen=True, eq=False)
class Look:
    """How a reply looks among those of its round: what sets it apart, and how long it is."""

    residual: np.ndarray
    length: float


def looks(changes: Mapping[int, np.ndarray]) -> dict[int, Look]:
    """Return how the changes of a round look; nothing where there are too few of them."""
    lengths = {p: float(np.linalg.norm(change)) for p, change in changes.items()}
    moving = {p: change / lengths[p] for p, change in changes.items() if lengths[p] > 0}
    if len(moving) < WITNESSES:
        return {}
    centre = np.mean(list(moving.values()), axis=0)
    usual = float(np.median([log(lengths[p]) for p in moving]))
    return {p: Look(way - centre, log(lengths[p]) - usual) for p, way in moving.items()}


def _noted(past: Past, look: Look) -> Past:
    """Return what is known of a client after one more look at it."""
    count = past.measured
    early = count < FIRST
    first = (past.first * count + look.length) / (count + 1) if early else past.first
    return replace(
        past,
        portrait=np.float32(FADING) * past.portrait + look.residual,
        measured=count + 1,
        likeness=past.likeness + (cosine(look.residual, past.portrait) if count else 0.0),
        first=first,
        length=first if early else past.length + PACE * (look.length - past.length),
    )


@dataclass(frozen=True)
class Doubt:
    """Why a client is in doubt: the name of what it does, its mean, and what would be the most."""

    what: str
    value: float
    most: float

    def __str__(self) -> str:
        return f"its {self.what} over the run is {self.value:.2f}, and at most {self.most:.2f}"


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
    ) -> History:
        """Return the record after a round, in which these clients sent and claimed this."""
        said = claims or {}
        known = self.clients
        noted = {p: _return(known[p], changes[p], server) for p in changes if p in known}
        pulled = [one.opposition for one in noted.values()]
        counts = len(pulled) >= RETURNING and float(np.median(pulled)) < PULLED
        seen = looks(changes)
        now = dict(known)
        for partition, change in changes.items():
            past = known.get(partition) or Past(change, server, np.zeros_like(change))
            if partition in seen:
                past = _noted(past, seen[partition])
            if counts and partition in noted:
                past = replace(
                    past,
                    returns=past.returns + 1,
                    opposition=past.opposition + noted[partition].opposition,
                    insistence=past.insistence + noted[partition].insistence,
                )
            now[partition] = replace(
                past,
                change=change,
                server=server,
                replies=past.replies + 1,
                claims=past.claims + said.get(partition, Claim()).value,
                allowances=past.allowances + said.get(partition, Claim()).allowance,
            )
        return History(now)

    def doubts(self) -> dict[int, Doubt]:
        """Return who is in doubt, and why."""
        present = {p: past for p, past in self.clients.items() if not past.left_out}
        return self._of_looks(present) | self._of_claims(present) | self._of_answers(present)

    @staticmethod
    def _of_looks(present: Mapping[int, Past]) -> dict[int, Doubt]:
        known = {p: past for p, past in present.items() if past.measured >= FIRST}
        if len(known) < WITNESSES:
            return {}
        unlike = {p: 1 - past.likeness / (past.measured - 1) for p, past in known.items()}
        usual = float(np.median(list(unlike.values())))
        content = {p: past.length - min(past.first, LONGEST) for p, past in known.items()}
        middle = float(np.median(list(content.values())))
        spread = float(np.median(np.abs(np.array(list(content.values())) - middle)))
        longest = middle + max(DISCONTENT, SPREADS * spread)
        found = {p: Doubt("discontent", v, longest) for p, v in content.items() if v > longest}
        for partition, value in unlike.items():
            most = usual + UNLIKENESS + SLACK / sqrt(known[partition].measured - 1)
            if value > most:
                found[partition] = Doubt("unlikeness to itself", value, most)
        return found

    @staticmethod
    def _of_claims(present: Mapping[int, Past]) -> dict[int, Doubt]:
        means = {p: past.claims / past.replies for p, past in present.items() if past.replies}
        if len(means) < WITNESSES:
            return {}
        usual = float(np.median(list(means.values())))
        found = {}
        for partition, mean in means.items():
            past = present[partition]
            most = CLAIM + (past.allowances / past.replies if mean > usual else 0.0)
            if abs(mean - usual) > most:
                found[partition] = Doubt("claim of precision", abs(mean - usual), most)
        return found

    @staticmethod
    def _of_answers(present: Mapping[int, Past]) -> dict[int, Doubt]:
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
            elif mean.insistence > insistence:
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
            [p, *(getattr(past, name) for name in TALLY)] for p, past in self.clients.items()
        ]
        return {
            f"{PREFIX}changes": np.stack([past.change for past in pasts]),
            f"{PREFIX}servers": np.stack([past.server for past in pasts]),
            f"{PREFIX}portraits": np.stack([past.portrait for past in pasts]),
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
        portraits = arrays[f"{PREFIX}portraits"]
        clients = {}
        for row, (partition, *values) in enumerate(tallies.tolist()):
            told = {n: v if n in REALS else int(v) for n, v in zip(TALLY, values, strict=True)}
            clients[int(partition)] = Past(changes[row], servers[row], portraits[row], **told)
        return cls(clients)
