"""How long planned runs will take and how many bytes they move, from what was measured before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedivon_app.core.settings import AnySettings
from fedivon_app.runs.cost import payload_bytes, reporting
from fedivon_app.tables.conditions import Condition
from fedivon_app.tables.outcome import Outcome
from fedivon_app.tables.result_file import ResultFiles


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


def _past(condition: Condition, results: ResultFiles) -> list[Outcome]:
    measured = results.of(condition.experiment)
    same = measured.get(condition)
    alike = [one for one in measured.values() if one.condition.strategy == condition.strategy]
    chosen = [same] if same is not None else alike
    return [run for one in chosen for run in one.runs.values() if run.rounds]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
