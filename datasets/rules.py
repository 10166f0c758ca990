"""The rules that divide examples among clients: pure functions from labels to index arrays.

Every rule is `rule(labels, num_clients, generator, *, options)` and returns one index array for
each client, disjoint and none empty. Where a random draw can fail, it is repeated at most RETRIES
times, then the error names the settings.
"""

from collections.abc import Sequence

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.datasets.allocation import (
    RETRIES,
    Generator,
    Parts,
    by_class,
    cut_counts,
    draw_by_counts,
    equal_counts,
    sized_shards,
    skewed,
    subsample,
)
from fedivon_app.datasets.base import real_number, whole_number


def iid(
    labels: np.ndarray, num_clients: int, generator: Generator, *, fraction: float = 1.0
) -> Parts:
    """Cut all examples, or a random `fraction` of them, into shuffled, near-equal parts."""
    pool = subsample("iid", len(labels), num_clients, generator, fraction)
    return np.array_split(pool, num_clients)


def shards(
    labels: np.ndarray,
    num_clients: int,
    generator: Generator,
    *,
    shards_per_client: int = 2,
    shard_sizes: Sequence[int] | None = None,
) -> Parts:
    """Divide by shards of labels.

    Without sizes (McMahan et al. 2017, section 3) the examples are sorted by label and cut into
    num_clients * shards_per_client near-equal shards, which are given out at random; complete.

    With `shard_sizes` (low, high) (FedIvon, section 7 and appendix F) a client's shards have
    distinct labels, which are spread as evenly as the data allow; a shard's size is uniform over
    low..high; the rest of the data is not used.
    """
    count = whole_number(shards_per_client, "shards: shards_per_client", 1)
    if shard_sizes is not None:
        return sized_shards(
            "shards", labels, num_clients, generator, per_client=count, sizes=shard_sizes
        )
    if num_clients * count > len(labels):
        raise DataError(
            f"shards: {num_clients} clients x {count} shards are more than "
            f"the {len(labels)} examples."
        )
    shuffled = generator.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    cut = np.array_split(by_label, num_clients * count)
    held = generator.permutation(len(cut)).reshape(num_clients, count)
    return [np.concatenate([cut[shard] for shard in row]) for row in held]


def two_class(
    labels: np.ndarray, num_clients: int, generator: Generator, *, per_class: int = 300
) -> Parts:
    """Give each client `per_class` examples of each of two classes.

    This is BayesADMM's highly heterogeneous split.
    """
    size = whole_number(per_class, "two-class: per_class", 1)
    counts = np.unique(labels, return_counts=True)[1]
    if len(counts) < 2:
        raise DataError("two-class: the data have fewer than two classes.")

    def possible(size: int) -> bool:
        return int(np.minimum(counts // size, num_clients).sum()) >= 2 * num_clients

    if not possible(size):
        largest = next(
            (smaller for smaller in range(min(size, counts.max()), 0, -1) if possible(smaller)),
            None,
        )
        advice = (
            "fewer clients are needed"
            if largest is None
            else f"the largest possible per_class is {largest}"
        )
        raise DataError(
            f"two-class: the data cannot give {num_clients} clients 2 classes x {size} examples; "
            f"{advice}."
        )
    return sized_shards(
        "two-class", labels, num_clients, generator, per_client=2, sizes=(size, size)
    )


def dirichlet(
    labels: np.ndarray,
    num_clients: int,
    generator: Generator,
    *,
    alpha: float,
    min_examples: int = 1,
    equal_sizes: bool = False,
) -> Parts:
    """Divide class c by p_c ~ Dir(alpha, ..., alpha) over the clients (Li et al. 2022); complete.

    A draw in which a client gets fewer than `min_examples` is repeated. With `equal_sizes`
    (Hsu et al. 2019) the draws are q_k ~ Dir(alpha, ..., alpha) over the classes, one for each
    client, and all clients have one size; see `equal_counts`.
    """
    concentration = real_number(alpha, "dirichlet: alpha")
    least = whole_number(min_examples, "dirichlet: min_examples", 1)
    members = by_class(labels)
    sizes = [len(places) for places in members]
    for _ in range(RETRIES):
        if equal_sizes:
            counts = equal_counts(sizes, num_clients, concentration, generator)
        else:
            shares = generator.dirichlet(np.full(num_clients, concentration), len(members)).T
            counts = cut_counts(sizes, shares)
        if counts.sum(axis=1).min() >= least:
            return draw_by_counts(members, counts, generator)
    raise DataError(
        f"dirichlet: no draw in {RETRIES} gave each of {num_clients} clients {least} or more of "
        f"{len(labels)} examples with alpha {alpha}; "
        "raise alpha or lower num_clients or min_examples."
    )


def heterogeneous(
    labels: np.ndarray,
    num_clients: int,
    generator: Generator,
    *,
    concentration: float = 0.5,
    fraction: float = 1.0,
) -> Parts:
    """Divide as BayesADMM does: client k gets of class c the share p_k q_kc / sum_j p_j q_jc.

    See `heterogeneous_shares`. Complete, or complete over a random `fraction` of the data.
    """
    real_number(concentration, "heterogeneous: concentration")
    pool = subsample("heterogeneous", len(labels), num_clients, generator, fraction)
    members = [pool[places] for places in by_class(labels[pool])]
    sizes = [len(places) for places in members]
    for _ in range(RETRIES):
        shares = heterogeneous_shares(num_clients, len(members), concentration, generator)
        if (
            np.isfinite(shares).all()
            and (counts := cut_counts(sizes, shares)).sum(axis=1).min() >= 1
        ):
            return draw_by_counts(members, counts, generator)
    raise DataError(
        f"heterogeneous: no draw in {RETRIES} left none of {num_clients} clients without an "
        f"example ({len(pool)} examples, concentration {concentration}); "
        "lower num_clients or raise concentration."
    )


def heterogeneous_shares(
    num_clients: int, num_classes: int, concentration: float, generator: Generator
) -> np.ndarray:
    """Draw the clients' shares of the classes, p_k q_kc / sum_j p_j q_jc.

    p ~ Dir(1, ..., 1) over clients and q_k ~ Dir(concentration, ...) over classes.
    """
    p = generator.dirichlet(np.ones(num_clients))
    q = generator.dirichlet(np.full(num_classes, concentration), num_clients)
    joint: np.ndarray = p[:, np.newaxis] * q
    with np.errstate(invalid="ignore"):
        shares: np.ndarray = joint / joint.sum(axis=0)
    return shares


def held_labels(
    labels: np.ndarray, num_clients: int, generator: Generator, *, labels_per_client: int
) -> Parts:
    """Give each client n labels at random, so that every label is held; complete.

    Sizes are skewed, see `skewed`. This is the split of pFedVEM and pFedHB.
    """
    per_client = whole_number(labels_per_client, "labels: labels_per_client", 1)
    members = by_class(labels)
    if per_client > len(members):
        raise DataError(
            f"labels: labels_per_client is {per_client}, but the data have {len(members)} labels."
        )
    if num_clients * per_client < len(members):
        raise DataError(
            f"labels: {num_clients} clients with {per_client} labels each cannot hold all "
            f"{len(members)} labels; raise labels_per_client or num_clients."
        )

    def draw() -> np.ndarray:
        order = generator.random((num_clients, len(members))).argsort(axis=1)
        held = order.argsort(axis=1) < per_client
        while len(unheld := np.flatnonzero(~held.any(axis=0))):
            shared = generator.choice(np.flatnonzero(held.sum(axis=0) > 1))
            giver = generator.choice(np.flatnonzero(held[:, shared]))
            held[giver, shared] = False
            held[giver, unheld[0]] = True
        return held

    return skewed("labels", members, num_clients, generator, draw)


def superclass(
    labels: np.ndarray, num_clients: int, generator: Generator, *, superclasses: Sequence[int]
) -> Parts:
    """Give each client one subclass of every superclass at random.

    Sizes are skewed as in `held_labels`. This is FedIvon's class concept drift (section 9);
    complete over the subclasses that somebody holds. `labels` are the subclasses, `superclasses[i]`
    is the superclass of subclass i.
    """
    table = np.asarray(superclasses)
    if table.ndim != 1 or labels.max() >= len(table):
        raise DataError(
            f"superclass: superclasses must name the superclass of each label 0 to {labels.max()}."
        )
    members = by_class(labels)
    above = table[np.unique(labels)]
    siblings = by_class(above)

    def draw() -> np.ndarray:
        held = np.zeros((num_clients, len(members)), bool)
        for group in siblings:
            held[np.arange(num_clients), generator.choice(group, num_clients)] = True
        return held

    return skewed("superclass", members, num_clients, generator, draw)


def natural(
    labels: np.ndarray, num_clients: int, generator: Generator, *, owners: Sequence[int]
) -> Parts:
    """Keep the division that the data come with; complete.

    `owners[i]` is the client, 0 to num_clients - 1, of example i.
    """
    owner = np.asarray(owners)
    if owner.shape != labels.shape:
        raise DataError(
            f"natural: owners has shape {owner.shape}, but there are {len(labels)} examples."
        )
    if owner.min() < 0 or owner.max() >= num_clients:
        raise DataError(
            f"natural: the data are divided over {owner.max() + 1} clients "
            f"(owners {owner.min()} to {owner.max()}), but num_clients is {num_clients}; "
            f"set data.clients={owner.max() + 1}."
        )
    parts = [np.flatnonzero(owner == client) for client in range(num_clients)]
    empty = [client for client, part in enumerate(parts) if not len(part)]
    if empty:
        raise DataError(f"natural: client {empty[0]} of {num_clients} owns no example.")
    return parts
