"""The search itself: trials of all methods are run in turn until their budgets are spent."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.text import duration
from fedivon_app.federation.run_maker import RunEnd
from fedivon_app.runs.version import commit
from fedivon_app.tuning.halving import Trial, Wait
from fedivon_app.tuning.makers import Made, Maker
from fedivon_app.tuning.space import words_of
from fedivon_app.tuning.study import Study, rounds_left
from fedivon_app.tuning.trial_runs import failure_of, job_of, name_of, rounds_done, scores_of

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Way:
    """A trial of a study, on its way."""

    study: Study
    trial: Trial

    @property
    def name(self) -> str:
        """The trial's name."""
        return name_of(self.study.strategy, self.trial)


@dataclass(eq=False)
class Clock:
    """How long it takes: seconds and rounds of what was run since the start, by method."""

    slots: int
    began: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)

    def ran(self, strategy: str, rounds: int, seconds: float) -> None:
        """Note a run, or a part of one."""
        self.rounds[strategy] = self.rounds.get(strategy, 0) + rounds
        self.seconds[strategy] = self.seconds.get(strategy, 0.0) + seconds

    def text(self, ahead: Mapping[str, int]) -> str:
        """Return how long it took so far, and how long it may still take, as in `left`."""
        so_far = f"{duration(time.monotonic() - self.began)} so far"
        rest = self.left(ahead)
        return f"{so_far}, about {duration(rest)} left" if rest else so_far

    def left(self, ahead: Mapping[str, int]) -> float | None:
        """Return the seconds for the rounds ahead, by method, at the pace of those before.

        It is None if there were none before.
        """
        if not sum(self.rounds.values()):
            return None
        common = sum(self.seconds.values()) / sum(self.rounds.values())
        paces = {
            name: self.seconds[name] / rounds for name, rounds in self.rounds.items() if rounds
        }
        total = sum(paces.get(name, common) * rounds for name, rounds in ahead.items())
        return total / self.slots


class Search:
    """Brings the trials of several studies to their goals, with runs in a folder."""

    def __init__(
        self,
        experiment: str,
        studies: Sequence[Study],
        folder: Path,
        clock: Clock,
        tell: Tell,
        final_runs: int = 0,
    ):
        self.experiment = experiment
        self.studies = studies
        self.folder = folder
        self.clock = clock
        self.tell = tell
        self.final_runs = final_runs
        self.commit = commit()
        self._under_way: dict[str, Way] = {}

    def run(self, maker: Maker) -> None:
        """Run until all budgets are spent; what was under way before comes first."""
        waiting = deque(Way(study, trial) for study in self.studies for trial in study.unfinished)
        while True:
            while maker.free and (way := self._next(waiting)) is not None:
                self._start(way, maker)
            if not self._under_way:
                return
            self._ended(maker.wait())

    def _next(self, waiting: deque[Way]) -> Way | None:
        """The next trial, of the method of whose budget the least is spent."""
        if waiting:
            return waiting.popleft()
        for study in sorted(self.studies, key=lambda study: study.share_spent):
            trial = study.next()
            if not isinstance(trial, Wait):
                return Way(study, trial)
        return None

    def _start(self, way: Way, maker: Maker) -> None:
        """Start a trial's run, unless what is asked of it is there already, or cannot be."""
        folder = self.folder / way.name
        if self._has_arrived(way, folder):
            self._note(way, folder, seconds=0.0)
            return
        try:
            job = job_of(self.experiment, way.study.subject, way.trial, folder, self.commit)
        except SettingsError as error:
            self._tell_end(way, way.study.failed(way.trial, str(error).partition("\n")[0], 0.0))
            return
        self.tell(start_text(way))
        self._under_way[way.name] = way
        maker.start(job)

    def _has_arrived(self, way: Way, folder: Path) -> bool:
        goal = way.trial.goal or 0
        return rounds_done(folder) >= goal and goal in scores_of(folder, way.study.rungs)

    def _ended(self, made: Made) -> None:
        way = self._under_way.pop(made.name)
        folder = self.folder / way.name
        self.clock.ran(way.study.strategy, way.trial.claimed - way.trial.rounds, made.seconds)
        if self._has_arrived(way, folder):
            self._note(way, folder, made.seconds)
            return
        why = failure_of(folder) or _reason(made.end)
        self._tell_end(way, way.study.failed(way.trial, why, made.seconds))

    def _note(self, way: Way, folder: Path, seconds: float) -> None:
        """A run may have gone further than it was asked to, and then has more to show."""
        rungs = way.study.rungs
        done = max(rung for rung in rungs if rung <= rounds_done(folder))
        scores = scores_of(folder, rungs)
        self._tell_end(way, way.study.arrived(way.trial, done, scores, seconds))

    def _ahead(self) -> dict[str, int]:
        """The rounds that are still to be made, by method, those after the search included."""
        ahead = {}
        for study in self.studies:
            under_way = sum((one.goal or 0) - one.rounds for one in study.unfinished)
            finals = self.final_runs * study.rungs[-1]
            ahead[study.strategy] = rounds_left([study]) + under_way + finals
        return ahead

    def _tell_end(self, way: Way, trial: Trial) -> None:
        self.tell(f"  {end_text(way.study, trial)}; {self.clock.text(self._ahead())}")


def _reason(end: RunEnd) -> str:
    return end.text.partition("\n")[0] or "the run ended without a held-out score"


def start_text(way: Way) -> str:
    """Return which trial is run, with which values, and how far."""
    trial = way.trial
    values = " ".join(words_of(trial.values))
    going_on = "on " if trial.rounds else ""
    return f"{_which(way.study, trial)}: {values}, {going_on}to round {trial.goal} ..."


def end_text(study: Study, trial: Trial) -> str:
    """Return what a trial came to, and the best so far."""
    if trial.failure:
        came_to = f"failed: {trial.failure}"
    else:
        came_to = f"held-out NLL {trial.last_score:.4f} after round {max(trial.scores)}"
    return f"{_which(study, trial)}: {came_to}; {best_text(study)}"


def best_text(study: Study) -> str:
    """Return the best so far of a method."""
    best = study.best
    if best is None or not math.isfinite(best.last_score):
        return "none with a score so far"
    at = f"trial {best.number + 1}, round {max(best.scores)}"
    return f"best so far {best.last_score:.4f} ({at})"


def _which(study: Study, trial: Trial) -> str:
    return f"{study.strategy}, trial {trial.number + 1} of about {study.expected}"
