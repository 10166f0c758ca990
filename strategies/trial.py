"""A trial of a round's replies on examples that the server itself has.

Whose change leads uphill is left out: a short step along it makes the loss of what was sent larger.
A push against what others learn shows there, and does not in a merge: it shortens the way of all,
which for a while is no harm.

Who makes the merge worse is left out then: first the one without whom the loss is smallest, then
the next among those who are left, until nobody's absence would make it smaller. Half of the replies
stay at least, unless the merge would be ruin: a loss far above that of what was sent. Then more are
left out until it is not, all of them if need be, and nothing is merged.

Where a reply is taken whole, with what its client's dual has made of it, to leave it out wrongly
costs more than it does good. There no merge counts as ruin, and it is not one reply that tells but
the client's record: how much of all its steps led uphill, by what they raised the loss and lowered
it.

A reply is held against the others, and not against what was sent: a client that has two of ten
classes makes a model worse if it is alone, and better among others that lack these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.portraits import Doubt

HELD = 1 << 26  # bytes of a round's replies that are held in memory at most

COUPLED = 0.05  # of the loss: who is left out wrongly has made a step of its dual for nothing

RUIN = 1.0  # by which a merge may raise the loss of what was sent, whoever has to be left out

STEP = 0.05  # of a change: short enough for its direction to matter, and not its length

CLIMBED = 0.8  # share of a client's way that may lead uphill, and over the root of its replies:
SLACK = 0.5

Trial = Callable[[Payload], float]  # the loss of a model on examples of the server's own
Loss = Callable[[Sequence[int]], float]  # of the merge of some replies, by their places


@dataclass(frozen=True)
class Way:
    """How far a client's steps, `count` in number, raised the loss in all, and lowered it.

    Each counts by the share of the loss at the time, but as no more than STEP.
    """

    up: float = 0.0
    down: float = 0.0
    count: int = 0

    def gone(self, slope: float) -> Way:
        """Return the way after one more step."""
        far = max(-STEP, min(slope, STEP))
        return Way(self.up + max(far, 0.0), self.down + max(-far, 0.0), self.count + 1)


def climbing(ways: Mapping[int, Way]) -> dict[int, Doubt]:
    """Return whose steps lead uphill again and again, and why that is too much."""
    found = {}
    for partition, way in ways.items():
        if way.up == 0:
            continue
        share = way.up / (way.up + way.down)
        most = CLIMBED + SLACK / sqrt(way.count)
        if share > most:
            found[partition] = Doubt("share of steps uphill", share, most)
    return found


def rises(replies: Sequence[Reply], sent: Payload, trial: Trial) -> list[float]:
    """Return what the loss of the server's model rises by with a step along each change."""
    mean = sent.posterior.mean

    def after(step: np.ndarray) -> float:
        return trial(replace(sent, posterior=replace(sent.posterior, mean=mean + step)))

    before = trial(sent)
    changes = (reply.posterior.mean - mean for reply in replies)
    return [after(np.float32(STEP) * change) - before for change in changes]


def slopes(replies: Sequence[Reply], sent: Payload, trial: Trial) -> dict[int, float]:
    """Return the same by partition, as shares of the loss."""
    before = trial(sent)
    found = rises(replies, sent, trial)
    if not before > 0:
        return {}
    return {reply.partition: rise / before for reply, rise in zip(replies, found, strict=True)}


def downhill(raised: Sequence[float]) -> list[int]:
    """Return the places of the replies whose first step does not raise the loss.

    `raised` is what it rises by. Of the replies that raise it, half of all go at most, those that
    raise it most.
    """
    steepest = sorted(range(len(raised)), key=lambda place: -raised[place])
    gone = {place for place in steepest[: len(raised) // 2] if raised[place] > 0}
    return [place for place in range(len(raised)) if place not in gone]


def harmless(
    count: int, loss: Loss, *, least: float = 0.0, staying: int = 0, most: float = inf
) -> list[int]:
    """Return the places of the replies, of so many, that do no harm among each other.

    What the loss falls by without a reply has to be more than the share `least` of it. Half of the
    replies stay, or so many as `staying`, as long as the loss is not above `most`.
    """
    few = max(staying or (count + 1) // 2, 1)
    kept = list(range(count))
    if count <= few and most == inf:
        return kept
    now = loss(kept) if kept else 0.0
    while len(kept) > few or now > most:
        if len(kept) == 1:
            return []
        without = {one: loss([other for other in kept if other != one]) for one in kept}
        worst = min(kept, key=without.__getitem__)
        if now <= most and not without[worst] < (1 - least) * now:
            break
        kept.remove(worst)
        now = without[worst]
    return kept


def at_hand(replies: Sequence[Reply]) -> list[Reply]:
    """Return the replies with what the clients sent in memory, where all of that is small.

    A trial merges each of them many times, and would read it, and cut it to its bounds, each time.
    """
    if not replies or len(replies) * _num_bytes(replies[0].payload) > HELD:
        return list(replies)
    return [replace(reply, source=reply.payload) for reply in replies]


def _num_bytes(payload: Payload) -> int:
    """Return the bytes of a payload in memory."""
    own = payload.posterior
    arrays = (own.mean, own.precision, payload.buffers, *payload.extras.values())
    return sum(array.nbytes for array in arrays if array is not None)
