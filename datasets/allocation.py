"""Pieces of the partition rules: who holds which label, and how a class is cut into shares.

`members` is one index array a class; `counts` and `shares` have a row for each client and a column
for each class.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.datasets.base import real_number, whole_number

RETRIES = 1000
Generator = np.random.Generator
Parts = list[np.ndarray]


def by_class(labels: np.ndarray) -> Parts:
    """Return the places of each label, in the order of the labels."""
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def subsample(
    rule: str, size: int, num_clients: int, generator: Generator, fraction: float
) -> np.ndarray:
    """Return a random fraction of 0..size-1, shuffled, with one example or more for each client."""
    real_number(fraction, f"{rule}: fraction", upto=1)
    kept = round(size * fraction)
    if kept < num_clients:
        raise DataError(
            f"{rule}: {fraction} of {size} examples is {kept}, too few for {num_clients} clients."
        )
    return generator.permutation(size)[:kept]


def cut_counts(sizes: Sequence[int], shares: np.ndarray) -> np.ndarray:
    """Return how many of each class's examples each client gets.

    A class is cut at the rounded cumulative shares, so that nothing is lost.
    """
    edges = np.cumsum(shares, axis=0)
    edges = np.rint(edges / edges[-1] * np.asarray(sizes)).astype(np.int64)
    return np.diff(edges, axis=0, prepend=0)


def equal_counts(
    sizes: Sequence[int], num_clients: int, concentration: float, generator: Generator
) -> np.ndarray:
    """Return how many of each class's examples each of the clients of near-equal sizes gets.

    Client after client fills its part by a draw of its own, q_k ~ Dir(concentration, ...) over the
    classes. What of it is used up is made up for by the other classes in the same proportions, so
    that the last clients get what is left. Nothing is lost.
    """
    left = np.array(sizes)
    counts = np.zeros((num_clients, len(left)), np.int64)
    for client, part in enumerate(np.array_split(np.arange(left.sum()), num_clients)):
        shares = generator.dirichlet(np.full(len(left), concentration))
        while missing := len(part) - counts[client].sum():
            open_shares = shares * (left > 0)
            wanted = open_shares if open_shares.sum() > 0 else left
            taken = np.minimum(cut_counts([missing], wanted[:, np.newaxis])[:, 0], left)
            counts[client] += taken
            left -= taken
    return counts


def draw_by_counts(members: Parts, counts: np.ndarray, generator: Generator) -> Parts:
    """Draw each client's examples, `counts` of every class, none of them for two clients."""
    pieces = [
        np.split(generator.permutation(places), np.cumsum(column))[:-1]
        for places, column in zip(members, counts.T, strict=True)
    ]
    return [
        np.concatenate([of_class[client] for of_class in pieces]) for client in range(len(counts))
    ]


def sized_shards(
    rule: str,
    labels: np.ndarray,
    num_clients: int,
    generator: Generator,
    per_client: int,
    sizes: Sequence[int],
) -> Parts:
    """Draw `per_client` shards of distinct labels for each client, of sizes uniform over low..high.

    A class goes to no more clients than it can serve at the mean size. Should the drawn sizes x of
    a class still add up to more than it has, they are mirrored, x -> low + high - x: as likely a
    draw, and one that fits.
    """
    low, high = size_bounds(rule, sizes)
    members = by_class(labels)
    supply = np.array([len(places) for places in members])
    if per_client > len(members):
        raise DataError(
            f"{rule}: {per_client} shards of distinct labels a client, "
            f"but only {len(members)} labels."
        )
    room = np.minimum(2 * supply // (low + high), num_clients)
    if room.sum() < num_clients * per_client:
        raise DataError(
            f"{rule}: {num_clients} clients x {per_client} shards of {low} to {high} examples are "
            f"more than the data can supply ({len(labels)} examples, {len(members)} labels, "
            f"the rarest with {supply.min()}); ask for less."
        )
    quotas = even_quotas(room, num_clients * per_client, generator)
    held = assign_labels(quotas, num_clients, per_client, generator)
    drawn = np.where(held, generator.integers(low, high + 1, held.shape), 0)
    mirrored = np.where(held, low + high - drawn, 0)
    counts = np.where(drawn.sum(axis=0) <= supply, drawn, mirrored)
    return draw_by_counts(members, counts, generator)


def size_bounds(rule: str, sizes: Sequence[int]) -> tuple[int, int]:
    """Return (low, high) if they are whole numbers with 1 <= low <= high."""
    if isinstance(sizes, str) or not hasattr(sizes, "__len__") or len(sizes) != 2:
        raise DataError(
            f"{rule}: shard_sizes must be two whole numbers (low, high), not {sizes!r}."
        )
    low = whole_number(sizes[0], f"{rule}: the lower of shard_sizes", 1)
    return low, whole_number(sizes[1], f"{rule}: the upper of shard_sizes", low)


def even_quotas(room: np.ndarray, total: int, generator: Generator) -> np.ndarray:
    """Return how many clients hold each label: numbers that add up to `total`.

    They are as even as `room` allows, and what is left over goes to labels at random.
    """
    level = 0
    while level < room.max() and np.minimum(room, level + 1).sum() <= total:
        level += 1
    quotas: np.ndarray = np.minimum(room, level)
    higher = generator.permutation(np.flatnonzero(room > level))
    quotas[higher[: total - quotas.sum()]] += 1
    return quotas


def assign_labels(
    quotas: np.ndarray, num_clients: int, per_client: int, generator: Generator
) -> np.ndarray:
    """Return who holds which label, (clients, labels) of bool.

    Client after client takes the labels of which most is left, ties at random, which uses up all
    quotas if none is above `num_clients` and they add up.
    """
    held = np.zeros((num_clients, len(quotas)), bool)
    left = quotas.copy()
    for row in generator.permutation(num_clients):
        taken = np.lexsort((generator.random(len(left)), -left))[:per_client]
        held[row, taken] = True
        left[taken] -= 1
    return held


def skewed(
    rule: str,
    members: Parts,
    num_clients: int,
    generator: Generator,
    draw: Callable[[], np.ndarray],
) -> Parts:
    """Divide classes with quantity skew.

    One set of random cut points of [0, 1] gives every client a width; a class is divided over those
    who hold it in proportion to their widths, after one example for each of them. Classes that
    nobody holds are unused. `draw` says who holds which class, (clients, classes) of bool.
    """
    sizes = np.array([len(places) for places in members])
    for _ in range(RETRIES):
        held = draw()
        if (held.sum(axis=0) <= sizes).all():
            break
    else:
        raise DataError(
            f"{rule}: no draw in {RETRIES} gave {num_clients} clients an example of each label "
            f"that they hold (the rarest label has {sizes.min()}); lower num_clients."
        )
    cuts = np.sort(generator.random(num_clients - 1))
    widths = np.diff(cuts, prepend=0.0, append=1.0)
    used = held.any(axis=0)
    counts = held.astype(np.int64)
    counts[:, used] += cut_counts(
        (sizes - held.sum(axis=0))[used], held[:, used] * widths[:, np.newaxis]
    )
    return draw_by_counts(members, counts, generator)
