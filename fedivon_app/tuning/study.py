"""The search for one method: what it is about, its trials so far, and the file that keeps them.

The file has a JSON value a line: first what the search is about, then for every trial when it was
begun, on the way to which round its run was started, and what came of it. Whoever reads it knows
all that there is to know, so that a search goes on from any moment at which it was ended.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedivon_app.core.dotted import flat
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.files import write_text
from fedivon_app.core.settings import AnySettings
from fedivon_app.runs.plan import identity_of
from fedivon_app.tuning.halving import (
    Begin,
    Trial,
    Wait,
    arrived,
    best_of,
    expected_trials,
    failed,
    next_move,
    on_the_way,
    rungs_of,
    spent,
)
from fedivon_app.tuning.proposals import propose
from fedivon_app.tuning.space import Space, Values, at_the_edge, current, overrides_of, range_text

SHOWN = 3  # settings that are named where a search was begun with others


@dataclass(frozen=True)
class Subject:
    """What is searched: a method's settings before any trial, and the ranges.

    `words` are the overrides that these settings were made with, `own` the user's among them, and
    `fixed` the names that the user gave a value; `holds_out` tells whether the experiment holds
    examples out by itself. No run stops before the round `first_stop`.
    """

    settings: AnySettings
    space: Space
    words: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    fixed: frozenset[str] = frozenset()
    holds_out: bool = True
    first_stop: int | None = None

    @property
    def strategy(self) -> str:
        """The method's name."""
        return self.settings.strategy

    @property
    def rungs(self) -> list[int]:
        """The rounds at which runs stop."""
        return rungs_of(self.settings.rounds, self.first_stop)

    def overrides(self, trial: Trial) -> dict[str, Any]:
        """Return the values of a trial, and what follows from them."""
        return overrides_of(trial.values, self.settings, self.fixed)

    def described(self) -> dict[str, Any]:
        """Return what a search is recognised by."""
        return {
            "ranges": {name: range_text(option) for name, option in self.space.items()},
            "rungs": self.rungs,
            "settings": identity_of(self.settings),
        }


class Study:
    """A search, whose trials are in a file."""

    def __init__(self, subject: Subject, budget: int, file: Path):
        self.subject = subject
        self.budget = budget
        self.file = file
        self.trials: list[Trial] = []
        self._open()

    @property
    def strategy(self) -> str:
        """The method's name."""
        return self.subject.strategy

    @property
    def rungs(self) -> list[int]:
        """The rounds at which runs stop."""
        return self.subject.rungs

    @property
    def share_spent(self) -> float:
        """How much of the budget is spent, runs on their way included."""
        return spent(self.trials) / self.budget

    @property
    def best(self) -> Trial | None:
        """The best of the trials that came furthest."""
        return best_of(self.trials, self.rungs)

    @property
    def winner(self) -> Trial | None:
        """The best of the trials that came to the last round."""
        best = self.best
        return best if best is not None and self.rungs[-1] in best.scores else None

    @property
    def edge_text(self) -> str:
        """What to know of the best where it lies at the edge of what was searched, or nothing."""
        best = self.winner
        names = at_the_edge(best.values, self.subject.space) if best is not None else []
        if not names:
            return ""
        return f"{self.strategy}: the best lies at the edge of the range of {', '.join(names)}"

    @property
    def unfinished(self) -> list[Trial]:
        """The trials with a run on the way."""
        return [trial for trial in self.trials if trial.goal is not None]

    @property
    def expected(self) -> int:
        """About how many trials there will be."""
        return max(expected_trials(self.rungs, self.budget), len(self.trials))

    def next(self) -> Trial | Wait:
        """Return a trial with the round that it is now on the way to, or whether to wait."""
        move = next_move(self.trials, self.rungs, self.budget)
        if isinstance(move, Wait):
            return move
        trial = self._new() if isinstance(move, Begin) else move.trial
        self._append({"starts": trial.number, "goal": move.goal})
        return self._keep(on_the_way(trial, move.goal))

    def arrived(
        self, trial: Trial, rounds: int, scores: Mapping[int, float], seconds: float
    ) -> Trial:
        """Note how far a run has come, and its scores."""
        return self._ended(arrived(trial, rounds, scores, seconds))

    def failed(self, trial: Trial, why: str, seconds: float) -> Trial:
        """Note that a run failed."""
        return self._ended(failed(trial, why, seconds))

    def _new(self) -> Trial:
        """The first trial has the values that are there already, if the ranges hold them."""
        values = self._proposed()
        trial = Trial(len(self.trials), values)
        self.trials.append(trial)
        self._append({"begins": trial.number, "values": values})
        return trial

    def _proposed(self) -> Values:
        subject = self.subject
        values = current(subject.space, subject.settings) if not self.trials else None
        if values is not None:
            return values
        return propose(subject.space, self.trials, self.rungs, subject.settings.seed)

    def _ended(self, trial: Trial) -> Trial:
        scores = {rung: _finite(score) for rung, score in trial.scores.items()}
        told = {"rounds": trial.rounds, "scores": scores, "seconds": round(trial.seconds, 3)}
        self._append({"ends": trial.number, **told, "failure": trial.failure})
        return self._keep(trial)

    def _keep(self, trial: Trial) -> Trial:
        self.trials[trial.number] = trial
        return trial

    def _open(self) -> None:
        """Read the file, or begin it; a line that was cut off is as if it had not been written."""
        about = json.loads(json.dumps({"study": self.subject.described()}))
        lines = _lines(self.file)
        if lines and lines[0] != about:
            raise SettingsError(_other(self.file, lines[0].get("study", {}), about["study"]))
        for line in lines[1:]:
            self._read(line)
        kept = lines or [about]
        write_text(self.file, "".join(f"{json.dumps(line)}\n" for line in kept))

    def _read(self, line: Mapping[str, Any]) -> None:
        if "begins" in line:
            self.trials.append(Trial(line["begins"], line["values"]))
        elif "starts" in line:
            self._keep(on_the_way(self.trials[line["starts"]], line["goal"]))
        else:
            scores = {int(rung): _score(score) for rung, score in line["scores"].items()}
            before = self.trials[line["ends"]]
            self._keep(
                Trial(
                    number=before.number,
                    values=before.values,
                    rounds=line["rounds"],
                    scores=scores,
                    seconds=line["seconds"],
                    failure=line["failure"],
                )
            )

    def _append(self, value: Mapping[str, Any]) -> None:
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")
            file.flush()
            os.fsync(file.fileno())


def file_name(strategy: str) -> str:
    """Return a method's name as a part of a file's; import paths have signs that no file should."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", strategy)


def rounds_left(studies: Iterable[Study]) -> int:
    """Return the rounds of all budgets that no run has been started for."""
    return sum(max(0, study.budget - spent(study.trials)) for study in studies)


def _lines(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def _other(file: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Why a search cannot be gone on with: it is about other settings or ranges."""
    was = flat(before)
    is_now = flat(now)
    names = [name for name in {**was, **is_now} if was.get(name) != is_now.get(name)]
    told = [
        f"{name.removeprefix('settings.')} is {is_now.get(name)!r} and was {was.get(name)!r}"
        for name in names[:SHOWN]
    ]
    return (
        f"{file} is a search of something else ({'; '.join(told)}): --name makes a second one "
        "beside it"
    )


def _finite(score: float) -> float | None:
    return score if math.isfinite(score) else None


def _score(value: float | None) -> float:
    return math.inf if value is None else value
