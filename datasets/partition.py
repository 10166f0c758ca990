"""Who gets which example: index maps by rule, pure and seeded. Numpy only."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedivon_app.datasets import rules
from fedivon_app.datasets.base import DataError, suggestion, whole_number

if TYPE_CHECKING:
    from fedivon_app.datasets.base import Source

RULES: dict[str, Callable[..., list[np.ndarray]]] = {
    "iid": rules.iid,
    "shards": rules.shards,
    "dirichlet": rules.dirichlet,
    "labels": rules.held_labels,
    "two-class": rules.two_class,
    "heterogeneous": rules.heterogeneous,
    "superclass": rules.superclass,
    "natural": rules.natural,
}
SUPPLIED = {
    "natural": "owners",
    "superclass": "superclasses",
}  # options that `split` takes from the source
PARTITION_STREAM, HOLDOUT_STREAM, CAP_STREAM = range(3)  # independent random numbers from one seed


@dataclass(frozen=True, eq=False)
class Split:
    """Each client's examples, as places in the source's train and test arrays, and the training examples held out."""

    train: list[np.ndarray]
    test: list[np.ndarray]
    holdout: np.ndarray


def options_of(rule: str) -> set[str]:
    """The names of the options that a rule takes."""
    return {parameter.name for parameter in _options(rule)}


def partition(
    rule: str, labels: np.ndarray, num_clients: int, seed: int, **options: Any
) -> list[np.ndarray]:
    """One sorted int64 array of places in `labels` for each client; disjoint, none empty."""
    _check_options(rule, options)
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"labels must be one whole number an example, not {labels.dtype} of shape {labels.shape}."
        )
    whole_number(num_clients, "num_clients", 1)
    if num_clients > len(labels):
        raise DataError(
            f"{num_clients} clients are more than the {len(labels)} examples to divide among them."
        )
    parts = RULES[rule](labels, num_clients, _generator(seed, PARTITION_STREAM), **options)
    return [np.sort(part).astype(np.int64) for part in parts]


def matching_test(
    train_labels_by_client: Sequence[np.ndarray], test_labels: np.ndarray
) -> list[np.ndarray]:
    """For each client, the test examples whose label (or subclass) occurs in its training data."""
    return [
        np.flatnonzero(np.isin(test_labels, np.unique(held))) for held in train_labels_by_client
    ]


def split(
    source: "Source",
    rule: str,
    num_clients: int,
    seed: int,
    *,
    holdout: int = 0,
    max_examples: int | None = None,
    **options: Any,
) -> Split:
    """Hold out some training examples, divide the rest by the rule, cap each client's at `max_examples`, and give each
    client its test examples: its own (`natural`), those of its subclasses (`superclass`), else those of its labels."""
    if given := set(options) & {SUPPLIED.get(rule)}:
        raise DataError(f"rule {rule}: {given.pop()} comes from the source and cannot be set.")
    labels, test_labels = _labels(source, rule)
    whole_number(holdout, "holdout", 0)
    if holdout >= len(labels):
        raise DataError(
            f"holdout is {holdout}, but there are only {len(labels)} training examples."
        )
    order = (
        _generator(seed, HOLDOUT_STREAM).permutation(len(labels))
        if holdout
        else np.arange(len(labels))
    )
    held_out = np.sort(order[:holdout])
    pool = np.sort(order[holdout:])
    if rule == "natural":
        options["owners"] = source.owner_train[pool]
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


def _labels(source: "Source", rule: str) -> tuple[np.ndarray, np.ndarray]:
    """The train and test labels that the rule divides by."""
    if rule == "natural" and source.owner_train is None:
        raise DataError(
            f"rule natural needs a source that comes divided over clients; {source.name} does not."
        )
    if rule != "superclass":
        return np.asarray(source.y_train), np.asarray(source.y_test)
    if source.subclass_train is None:
        raise DataError(
            f"rule superclass needs a source with subclasses, such as cifar100 with labels superclass; {source.name} "
            "has none."
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


def _options(rule: str) -> list[inspect.Parameter]:
    if rule not in RULES:
        raise DataError(f"there is no partition rule {rule!r}; {suggestion(rule, RULES)}")
    parameters = inspect.signature(RULES[rule]).parameters.values()
    return [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _check_options(rule: str, options: dict[str, Any]) -> None:
    known = options_of(rule)
    if unknown := sorted(set(options) - known):
        raise DataError(
            f"partition rule {rule} has no option {unknown[0]!r}; {suggestion(unknown[0], known)}"
        )
    for parameter in _options(rule):
        if parameter.default is parameter.empty and parameter.name not in options:
            raise DataError(f"partition rule {rule} needs the option {parameter.name}.")


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng([whole_number(seed, "seed", 0), stream])
