"""How long planned runs will take and how many bytes they move, from what was measured before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from fedivon_app.core.errors import UserError
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import division
from fedivon_app.runs.cost import payload_bytes, reporting
from fedivon_app.server.setup import num_clients_of
from fedivon_app.tables.conditions import Condition
from fedivon_app.tables.outcome import Outcome
from fedivon_app.tables.result_file import Measured, ResultFiles, leaves_of

NETWORK = ("dataset", "data.source", "model.")  # what an example's pass costs hangs on these


@dataclass(frozen=True)
class Estimate:
    """Seconds, or None where nothing like it was ever run, and bytes of a run."""

    seconds: float | None
    bytes: float


@dataclass(frozen=True)
class Past:
    """A run that was made, and how many times its work a planned one has to do."""

    run: Outcome
    ratio: float

    @property
    def seconds(self) -> float:
        """Return how long the planned run would take at the pace of this one."""
        return self.run.seconds * self.ratio


def estimate(condition: Condition, settings: AnySettings, results: ResultFiles) -> Estimate:
    """Return what a run will cost.

    The time follows from runs of the same condition, else of the same method in the experiment
    with the same network on the same data set. It is in proportion to the work: rounds x clients x
    passes over the data x examples of a client. Of several runs the one in the middle counts,
    because a busy machine makes some of them several times slower.
    """
    past = list(_past(condition, settings, results))
    seconds = median(one.seconds for one in past) if past else None
    if past:
        a_round = _mean(1e6 * one.run.megabytes * one.run.clients for one in past)
    else:
        a_round = 2 * payload_bytes(settings) * reporting(settings)
    return Estimate(seconds, settings.rounds * a_round)


def _past(condition: Condition, settings: AnySettings, results: ResultFiles) -> Iterator[Past]:
    leaves = leaves_of(settings)
    measured = results.of(condition.experiment)
    same = measured.get(condition)
    for one in measured.values() if same is None else [same]:
        if one.condition.strategy == condition.strategy and _same(one.settings, leaves, NETWORK):
            clients = _training(leaves) / _training(one.settings)
            a_round = clients * _more_work(settings, leaves, one)
            for run in one.runs.values():
                if run.rounds:
                    yield Past(run, a_round * settings.rounds / run.rounds)


def _same(one: Mapping[str, Any], other: Mapping[str, Any], starts: tuple[str, ...]) -> bool:
    names = {name for name in one.keys() | other.keys() if name.startswith(starts)}
    return all(one.get(name) == other.get(name) for name in names)


def _passes(leaves: Mapping[str, Any]) -> float:
    """How often a client goes through its examples in a round, with the passes of its head."""
    return float(leaves.get("client.epochs") or 1) + float(leaves.get("client.head_epochs") or 0)


def _training(leaves: Mapping[str, Any]) -> float:
    """How many clients train in a round; 1 where nobody knows before the sites are there."""
    everyone = leaves.get("data.clients")
    sampled = None if leaves.get("train_all_clients") else leaves.get("clients_per_round")
    return float(sampled or everyone or 1)


def _more_work(settings: AnySettings, leaves: Mapping[str, Any], past: Measured) -> float:
    """How many times the work of a client of an earlier run a client of the new one has, a round.

    One that takes a number of minibatches has no other work.
    """
    counts = [each.get("client.minibatches") for each in (leaves, past.settings)]
    if all(counts):
        new, old = (each["client.batch_size"] for each in (leaves, past.settings))
        return float(counts[0] * new / (counts[1] * old))
    return _passes(leaves) / _passes(past.settings) * _more_examples(settings, leaves, past)


def _more_examples(settings: AnySettings, leaves: Mapping[str, Any], past: Measured) -> float:
    """The same for its examples: 1 where the data are dealt alike, or are not here."""
    if _same(past.settings, leaves, ("data.",)):
        return 1.0
    try:
        return _examples(settings) / _examples(past.condition.settings())
    except (UserError, OSError, ZeroDivisionError):
        return 1.0


def _examples(settings: AnySettings) -> float:
    """The training examples of a client, on average."""
    divided = division(settings.data, num_clients_of(settings), settings.seed, settings.task)
    return _mean(len(part) for part in divided.split.train)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
