"""How long planned runs will take and how many bytes they move, from what was measured before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedivon_app.core.settings import AnySettings
from fedivon_app.methods import method
from fedivon_app.server.setup import prepare
from fedivon_app.tables.conditions import Condition
from fedivon_app.tables.outcome import Outcome
from fedivon_app.tables.result_file import ResultFiles

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Estimate:
    """Seconds, or None where nothing like it was ever run, and bytes of a run."""

    seconds: float | None
    bytes: float


def estimate(condition: Condition, settings: AnySettings, results: ResultFiles) -> Estimate:
    """Return what a run will cost.

    The time is that of a round of the same condition, else of the same method in the experiment.
    """
    past = _past(condition, results)
    rounds = settings.rounds
    seconds = rounds * _mean(run.seconds / run.rounds for run in past) if past else None
    if past:
        sent = rounds * _mean(1e6 * run.megabytes * run.clients for run in past)
    else:
        sent = rounds * 2 * payload_bytes(settings) * reporting(settings)
    return Estimate(seconds, sent)


def reporting(settings: AnySettings) -> int:
    """Return how many clients report in a round."""
    return settings.clients_per_round or settings.data.clients or 2


def payload_bytes(settings: AnySettings) -> float:
    """Return the bytes that the server sends to a client in the first round."""
    prepared = prepare(settings)
    strategy = method(settings.strategy).strategy(settings, prepared.architecture)
    first = strategy.begin(prepared.flat.mean(), prepared.flat.buffers)
    mean = first.posterior.mean
    vectors = 1 if first.posterior.precision is None else 2
    extras = sum(array.nbytes for array in first.extras.values())
    return float(FLOAT * len(mean) * vectors + extras)


def _past(condition: Condition, results: ResultFiles) -> list[Outcome]:
    measured = results.of(condition.experiment)
    same = measured.get(condition)
    alike = [one for one in measured.values() if one.condition.strategy == condition.strategy]
    chosen = [same] if same is not None else alike
    return [run for one in chosen for run in one.runs.values() if run.rounds]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
