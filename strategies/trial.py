"""A trial of a round's replies on examples that the server itself has.

Who makes the merge worse on them is left out: first the one without whom the loss is smallest, then
the next among those who are left, until nobody's absence would make it smaller. Half of the replies
stay at least.

A reply is held against the others, and not against what was sent: a client that has two of ten
classes makes a model worse if it is alone, and better among others that lack these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Loss = Callable[[Sequence[int]], float]  # of the merge of some replies, by their places


def harmless(count: int, loss: Loss) -> list[int]:
    """Return the places of the replies, of so many, that do no harm among each other."""
    kept = list(range(count))
    if count == 1:
        return kept
    now = loss(kept)
    while len(kept) > (count + 1) // 2:
        without = {one: loss([other for other in kept if other != one]) for one in kept}
        worst = min(kept, key=without.__getitem__)
        if not without[worst] < now:
            break
        kept.remove(worst)
        now = without[worst]
    return kept
