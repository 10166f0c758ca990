"""Who gets which example: index maps by rule, pure and seeded. Numpy only.

A rule of the user's own is named by its import path; it looks like those in datasets/rules.py:
`rule(labels, num_clients, generator, *, options)` returns one index array for each client.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.core.registry import Registry
from fedivon_app.datasets import rules
from fedivon_app.datasets.base import Source, blamed_on, no_option, whole_number

Rule = Callable[..., list[np.ndarray]]

RULES: Registry[Rule] = Registry(
    "partition rule",
    {
        "iid": rules.iid,
        "shards": rules.shards,
        "dirichlet": rules.dirichlet,
        "labels": rules.held_labels,
        "two-class": rules.two_class,
        "heterogeneous": rules.heterogeneous,
        "superclass": rules.superclass,
        "natural": rules.natural,
    },
)
# options that `split` takes from the source
SUPPLIED = {"natural": "owners", "superclass": "superclasses"}
# rules that look at no label
BLIND = ("iid", "natural")
# independent random numbers from one seed
PARTITION_STREAM = 0
HOLDOUT_STREAM = 1
CAP_STREAM = 2


@dataclass(frozen=True, eq=False)
class Split:
    """Each client's examples, and the training examples that are held out.

    All are places in the source's train and test arrays.
    """

    train: list[np.ndarray]
    test: list[np.ndarray]
    holdout: np.ndarray


def options_of(rule: str) -> set[str]:
    """Return the names of the options that a rule takes."""
    return {parameter.name for parameter in _options(rule)}


def partition(
    rule: str, labels: np.ndarray, num_clients: int, seed: int, **options: Any
) -> list[np.ndarray]:
    """Divide examples among clients by a rule.

    Return one sorted int64 array of places in `labels` for each client; they are disjoint, and none
    is empty.
    """
    _check_options(rule, options)
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            "labels must be one whole number an example, "
            f"not {labels.dtype} of shape {labels.shape}."
        )
    whole_number(num_clients, "num_clients", 1)
    if num_clients > len(labels):
        raise DataError(
            f"{num_clients} clients are more than the {len(labels)} examples to divide among them."
        )
    generator = _generator(seed, PARTITION_STREAM)
    if rule in RULES:
        parts = RULES[rule](labels, num_clients, generator, **options)
    else:
        parts = _own_parts(rule, labels, num_clients, generator, options)
    return [np.sort(part).astype(np.int64) for part in parts]


def matching_test(
    train_labels_by_client: Sequence[np.ndarray], test_labels: np.ndarray
) -> list[np.ndarray]:
    """Return, for each client, the test examples whose label (or subclass) it has in training."""
    return [
        np.flatnonzero(np.isin(test_labels, np.unique(held))) for held in train_labels_by_client
    ]


def split(
    source: Source,
    rule: str,
    num_clients: int,
    seed: int,
    *,
    holdout: int = 0,
    max_examples: int | None = None,
    **options: Any,
) -> Split:
    """Divide a source: hold out some training examples, and give the rest to clients by the rule.

    Each client's training examples are capped at `max_examples`. Its test examples are its own
    (`natural`), those of its subclasses (`superclass`), or else those of its labels.
    """
    if given := set(options) & {SUPPLIED.get(rule)}:
        raise DataError(f"rule {rule}: {given.pop()} comes from the source and cannot be set.")
    labels, test_labels = _labels(source, rule)
    whole_number(holdout, "holdout", 0)
    if holdout >= len(labels):
        raise DataError(
            f"holdout is {holdout}, but there are only {len(labels)} training examples."
        )
    order = np.arange(len(labels))
    if holdout:
        order = _generator(seed, HOLDOUT_STREAM).permutation(len(labels))
    held_out = np.sort(order[:holdout])
    pool = np.sort(order[holdout:])
    if rule == "natural":
        options["owners"] = np.asarray(source.owner_train)[pool]
    if rule == "superclass":
        options["superclasses"] = _superclasses(labels, source.y_train)
    train = [pool[part] for part in partition(rule, labels[pool], num_clients, seed, **options)]
    if max_examples is not None:
        whole_number(max_examples, "max_examples", 1)
        generator = _generator(seed, CAP_STREAM)
        train = [np.sort(generator.permutation(part)[:max_examples]) for part in train]
    if rule == "natural":
        test = [np.flatnonzero(source.owner_test == client) for client in range(num_clients)]
    else:
        test = matching_test([labels[part] for part in train], test_labels)
    return Split(train, test, held_out)


def _labels(source: Source, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """The train and test labels that the rule divides by."""
    if rule == "natural" and source.owner_train is None:
        how = "; set data.client_column" if source.name == "table" else ""
        raise DataError(
            "rule natural needs a source that comes divided over clients; "
            f"{source.name} does not{how}."
        )
    if np.asarray(source.y_train).dtype.kind == "f":
        if rule not in BLIND:
            raise DataError(
                f"rule {rule} divides by labels, and a number is to be predicted here: "
                f"choose from {', '.join(BLIND)}."
            )
        alike = np.zeros(len(source.y_train), np.int64)
        return alike, np.zeros(len(source.y_test), np.int64)
    if rule != "superclass":
        return np.asarray(source.y_train), np.asarray(source.y_test)
    if source.subclass_train is None:
        raise DataError(
            "rule superclass needs a source with subclasses, such as cifar100 with labels "
            f"superclass; {source.name} has none."
        )
    return np.asarray(source.subclass_train), np.asarray(source.subclass_test)


def _superclasses(subclasses: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The superclass of each subclass, as the examples show it."""
    table = np.zeros(subclasses.max() + 1, np.int64)
    table[subclasses] = labels
    if (astray := np.flatnonzero(table[subclasses] != labels)).size:
        raise DataError(
            f"rule superclass: subclass {subclasses[astray[0]]} occurs in more than one superclass."
        )
    return table


def _own_parts(
    rule: str,
    labels: np.ndarray,
    num_clients: int,
    generator: np.random.Generator,
    options: dict[str, Any],
) -> list[np.ndarray]:
    """What the user's own rule returns, if it is one non-empty array a client, all disjoint."""
    what = f"partition rule {rule!r}"
    with blamed_on(what):
        returned = RULES.find(rule)(labels, num_clients, generator, **options)
        parts = [np.asarray(part) for part in returned]
    if len(parts) != num_clients:
        raise DataError(f"{what} returned {len(parts)} parts for {num_clients} clients.")
    for client, part in enumerate(parts):
        if part.ndim != 1 or part.dtype.kind not in "iu" or not len(part):
            raise DataError(
                f"{what}: the part of client {client} must be a list of at least one place in "
                f"labels, not {part.dtype} of shape {part.shape}."
            )
    places = np.concatenate([part.astype(np.int64) for part in parts])
    if places.min() < 0 or places.max() >= len(labels):
        raise DataError(
            f"{what} returned places from {places.min()} to {places.max()}, "
            f"but those in labels are 0 to {len(labels) - 1}."
        )
    if len(np.unique(places)) < len(places):
        raise DataError(f"{what} gave an example away twice; the clients' parts must be disjoint.")
    return parts


def _options(rule: str) -> list[inspect.Parameter]:
    parameters = inspect.signature(RULES.find(rule)).parameters.values()
    return [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _check_options(rule: str, options: dict[str, Any]) -> None:
    known = options_of(rule)
    if unknown := sorted(set(options) - known):
        raise no_option(f"partition rule {rule}", unknown[0], known)
    for parameter in _options(rule):
        if parameter.default is parameter.empty and parameter.name not in options:
            raise DataError(f"partition rule {rule} needs the option {parameter.name}.")


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng([whole_number(seed, "seed", 0), stream])
