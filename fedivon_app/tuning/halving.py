"""Who goes on: successive halving over rounds, within a budget of rounds. Plain values only.

The rungs are rounds at which runs stop. A run goes on from one to the next when it is in the best
third of all that came as far; until there is such a run, another trial is begun. So no trial waits
for others, and what is known at any time decides (Li et al. 2020, asynchronous halving).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from fedivon_app.core.search_range import Plain

SHARE = 3  # one in so many goes on, and has so many times the rounds


@dataclass(frozen=True)
class Trial:
    """Values that are tried: how far their run has come, and its scores by round, low is good.

    `goal` is the round that a run is on the way to. A run that failed has a `failure`, which says
    why, and an infinite score at the round that it did not come to.
    """

    number: int
    values: Mapping[str, Plain]
    rounds: int = 0
    goal: int | None = None
    scores: Mapping[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    failure: str = ""

    @property
    def claimed(self) -> int:
        """The rounds of the budget that are the trial's."""
        return max(self.rounds, self.goal or 0)

    @property
    def last_score(self) -> float:
        """The score at the last rung that it came to, infinite before."""
        return self.scores[max(self.scores)] if self.scores else math.inf


class Wait(Enum):
    """There is nothing to start: until a run has ended, or at all."""

    FOR_A_RUN = "for a run"
    NO_LONGER = "no longer"


@dataclass(frozen=True)
class Begin:
    """A new trial is to be begun, and run to the first rung."""

    goal: int


@dataclass(frozen=True)
class GoOn:
    """A trial is to go on to this round."""

    trial: Trial
    goal: int


Move = Begin | GoOn | Wait


def rungs_of(rounds: int, first: int | None = None) -> list[int]:
    """Return the rounds at which runs stop: a ninth, a third and all of them.

    With `first` no run stops before this round.
    """
    parts = [max(1, round(rounds / SHARE**power)) for power in (2, 1, 0)]
    if first is not None:
        parts = [min(first, rounds), *(part for part in parts if part > first)]
    return sorted({*parts})


def spent(trials: Iterable[Trial]) -> int:
    """Return the rounds that are taken from the budget, those of runs on their way included."""
    return sum(trial.claimed for trial in trials)


def next_move(trials: Sequence[Trial], rungs: Sequence[int], budget: int) -> Move:
    """Return what is to be done next within a budget of rounds.

    Nothing is begun, and nobody goes on, that could not be brought to its end.
    """
    left = budget - spent(trials)
    last = rungs[-1]
    for rung, further in reversed(list(pairwise(rungs))):
        there = reached(trials, rung)
        for trial in there[: len(there) // SHARE]:
            if _may_go_on(trial, rung) and last - rung <= left:
                return GoOn(trial, further)
    if left >= last:
        return Begin(rungs[0])
    if any(trial.goal is not None for trial in trials):
        return Wait.FOR_A_RUN
    return _with_the_rest(trials, rungs, left)


def _with_the_rest(trials: Sequence[Trial], rungs: Sequence[int], left: int) -> Move:
    """With what is too little for another trial, the most promising are brought to their end."""
    for rung, further in reversed(list(pairwise(rungs))):
        for trial in reached(trials, rung):
            if _may_go_on(trial, rung) and rungs[-1] - rung <= left:
                return GoOn(trial, further)
    return Wait.NO_LONGER


def reached(trials: Iterable[Trial], rung: int) -> list[Trial]:
    """Return the trials that have a score at a rung, the best first."""
    there = [trial for trial in trials if rung in trial.scores]
    return sorted(there, key=lambda trial: (trial.scores[rung], trial.number))


def _may_go_on(trial: Trial, rung: int) -> bool:
    idle = trial.goal is None and not trial.failure
    return idle and trial.rounds == rung and math.isfinite(trial.scores[rung])


def on_the_way(trial: Trial, goal: int) -> Trial:
    """Return the trial with a run on the way to this round."""
    return replace(trial, goal=goal)


def arrived(trial: Trial, rounds: int, scores: Mapping[int, float], seconds: float) -> Trial:
    """Return the trial whose run has come so far, with the scores that it has now."""
    return replace(
        trial,
        rounds=rounds,
        goal=None,
        scores={**trial.scores, **scores},
        seconds=trial.seconds + seconds,
    )


def failed(trial: Trial, why: str, seconds: float) -> Trial:
    """Return the trial whose run failed; the rounds that it was to make count as made."""
    goal = trial.goal or trial.rounds
    return replace(
        arrived(trial, goal, {goal: math.inf}, seconds), failure=why or "it failed without a word"
    )


def best_of(trials: Iterable[Trial], rungs: Sequence[int]) -> Trial | None:
    """Return the best of the trials that came furthest, or None if none has a score."""
    several = list(trials)
    for rung in reversed(rungs):
        there = [trial for trial in reached(several, rung) if math.isfinite(trial.scores[rung])]
        if there:
            return there[0]
    return None


def expected_trials(rungs: Sequence[int], budget: int) -> int:
    """Return how many trials such a budget has about: as many as if scores came at random."""
    trials: list[Trial] = []
    while not isinstance(move := next_move(trials, rungs, budget), Wait):
        if isinstance(move, Begin):
            trials.append(Trial(len(trials), {}))
        place = len(trials) - 1 if isinstance(move, Begin) else move.trial.number
        score = (place * (math.sqrt(5) - 1) / 2) % 1
        trials[place] = arrived(trials[place], move.goal, {move.goal: score}, 0.0)
    return len(trials)
