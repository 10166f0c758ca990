"""A trial of a round's replies on examples that the server itself has.

Whose change leads uphill is left out: a short step along it makes the loss of what was sent larger.
A push against what others learn shows there, and does not in a merge: it shortens the way of all,
which for a while is no harm.

Who makes the merge worse is left out then: first the one without whom the loss is smallest, then
the next among those who are left, until nobody's absence would make it smaller. Half of the replies
stay at least.

A reply is held against the others, and not against what was sent: a client that has two of ten
classes makes a model worse if it is alone, and better among others that lack these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fedivon_app.core.codec import Payload
from fedivon_app.strategies.base import Reply

HELD = 1 << 26  # bytes of a round's replies that are held in memory at most

COUPLED = 0.05  # of the loss: who is left out wrongly has made a step of its dual for nothing

STEP = 0.05  # of a change: short enough for its direction to matter, and not its length

Loss = Callable[[Sequence[int]], float]  # of the merge of some replies, by their places


def downhill(rises: Sequence[float]) -> list[int]:
    """Return the places of the replies whose first step does not raise the loss.

    `rises` are what it rises by. Of the replies that raise it, half of all go at most, those that
    raise it most.
    """
    steepest = sorted(range(len(rises)), key=lambda place: -rises[place])
    gone = {place for place in steepest[: len(rises) // 2] if rises[place] > 0}
    return [place for place in range(len(rises)) if place not in gone]


def harmless(count: int, loss: Loss, *, least: float = 0.0, staying: int = 0) -> list[int]:
    """Return the places of the replies, of so many, that do no harm among each other.

    What the loss falls by without a reply has to be more than the share `least` of it. Half of the
    replies stay, or so many as `staying`.
    """
    few = staying or (count + 1) // 2
    kept = list(range(count))
    if count <= max(few, 1):
        return kept
    now = loss(kept)
    while len(kept) > few:
        without = {one: loss([other for other in kept if other != one]) for one in kept}
        worst = min(kept, key=without.__getitem__)
        if not without[worst] < (1 - least) * now:
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
