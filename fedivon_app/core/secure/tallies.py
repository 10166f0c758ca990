"""The clients' scores as one sum: tallies of both models and both ways of predicting."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedivon_app.core.client_scores import PLACES, Tallies
from fedivon_app.core.metrics import NUM_BINS, Tally
from fedivon_app.core.scores import Score
from fedivon_app.core.secure.fixed_point import Layout, Slot
from fedivon_app.core.tally import OWN

WAYS = ("mean", "mc")
_WHOLE = ("count", "correct", "bin_count", "bin_correct")  # numbers of examples
_BOUND = 2.0**40


def sizes_of(scores: Mapping[str, Score], num_classes: int | None) -> dict[str, int]:
    """Return how many numbers each field of a tally has, those of further scores included."""
    classes = num_classes or 2
    found = {name: NUM_BINS if name.startswith("bin_") else 1 for name in Tally.SUMMED}
    probabilities = np.full((1, classes), 1 / classes)
    for name, score in scores.items():
        if score.sums is not None:
            found[OWN + name] = np.size(score.sums(probabilities, np.zeros(1, np.int64)))
    return found


def layout(sizes: Mapping[str, int], clients: int) -> Layout:
    """Return how the tallies of so many clients are summed as integers."""
    slots = {
        f"{who}.{way}.{name}": Slot(size, bound=_BOUND, bits=64)
        for who in PLACES
        for way in WAYS
        for name, size in sizes.items()
    }
    return Layout(slots, clients)


def part(tallies: Tallies, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return what one client adds; a model that it does not have adds zeros."""
    found = {}
    for who in PLACES:
        for way in WAYS:
            tally = tallies.get(who, {}).get(way)
            told = {} if tally is None else tally.to_dict()
            for name, size in sizes.items():
                found[f"{who}.{way}.{name}"] = np.atleast_1d(told.get(name, np.zeros(size)))
    return found


def read(sums: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> Tallies:
    """Return the tallies of all clients together; those of no examples are left out."""
    found: dict[str, dict[str, Tally]] = {}
    for who in PLACES:
        for way in WAYS:
            values = {name: sums[f"{who}.{way}.{name}"] for name in sizes}
            for name in _WHOLE:
                values[name] = np.rint(values[name])
            if values["count"][0] > 0:
                told: dict[str, float | list[float]] = {}
                for name, value in values.items():
                    if name in Tally.SUMMED:
                        value = np.maximum(value, 0.0)  # a zero may come back as -1e-7
                    whole = name in Tally.SUMMED and sizes[name] == 1
                    told[name] = float(value[0]) if whole else value.tolist()
                found.setdefault(who, {})[way] = Tally.from_dict(told)
    return found
