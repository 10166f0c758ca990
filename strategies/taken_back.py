"""What clients have added to a method's sums, taken back where one is left out.

A server that follows the sum of its clients' duals would carry what a liar added to it to the end
of the run. So it is kept what each client has added, as long as there is room for it: with that of
a client taken away, the sums are as if it had never taken part. Dual steps are linear in the
replies, so that what a reply adds is what a merge of it alone does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from fedivon_app.strategies.base import Merged, Reply, State

SUMS = "sum_"  # how the names of sums over clients begin in a method's state
KEPT = "added_"  # and those of what one client has added, its partition behind
ROOM = 1 << 26  # bytes that all clients' parts of the sums may have together

Alone = Callable[[Reply], Merged]  # the merge of a single reply


def additions(replies: Sequence[Reply], before: State, alone: Alone) -> Mapping[int, State]:
    """Return what each of the replies adds to the sums, by partition."""
    found = {}
    for reply in replies:
        after = alone(reply).state
        found[reply.partition] = {
            name: array - before.get(name, 0.0)
            for name, array in after.items()
            if name.startswith(SUMS)
        }
    return found


def has_room(state: Mapping[str, np.ndarray], clients: int) -> bool:
    """Tell whether all clients' parts of the sums in a state may be kept."""
    sums = (array.nbytes for name, array in state.items() if name.startswith(SUMS))
    return clients * sum(sums) <= ROOM


def settled(
    before: State, after: State, added: Mapping[int, State], gone: Collection[int]
) -> dict[str, np.ndarray]:
    """Return the state after a merge, with what clients have added, but for those who are gone.

    What these have added is taken out of the sums, once.
    """
    kept = {name: array for name, array in before.items() if name.startswith(KEPT)}
    for partition, arrays in added.items():
        for name, array in arrays.items():
            own = f"{KEPT}{partition}_{name}"
            kept[own] = kept.get(own, 0.0) + array
    found = dict(after)
    for partition in gone:
        for name in after:
            if (lie := kept.pop(f"{KEPT}{partition}_{name}", None)) is not None:
                found[name] = found[name] - lie
    return found | kept
