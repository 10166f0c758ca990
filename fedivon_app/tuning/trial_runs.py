"""The runs of trials: how they are started and gone on with, and what they came to."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedivon_app.core.settings import AnySettings
from fedivon_app.report.results import number
from fedivon_app.runs.catalogue import look
from fedivon_app.runs.folder import Run
from fedivon_app.runs.plan import Plan, plan_runs
from fedivon_app.runs.records import SETTINGS, read_metrics
from fedivon_app.tuning.halving import Trial
from fedivon_app.tuning.makers import Job
from fedivon_app.tuning.space import words_of
from fedivon_app.tuning.study import Subject, file_name

HELD_OUT = "holdout"
SCORE = "nll"
WAYS = ("mc", "mean")  # by samples where there are any


def plan_of(experiment: str, subject: Subject, trial: Trial) -> Plan:
    """Return the plan of a trial's run as far as its goal; a SettingsError if it cannot be."""
    words = [*subject.words, *words_of(subject.overrides(trial))]
    goal = stop_of(trial, subject.settings)
    stop = [] if goal is None else [f"run.stop_after={goal}"]
    (plan,) = plan_runs(experiment, {"strategy": [subject.strategy]}, [*words, *stop])
    return plan


def first_plan(experiment: str, subject: Subject) -> Plan:
    """Return the plan of a run with the values that are there, to see whether it can be made."""
    (plan,) = plan_runs(experiment, {"strategy": [subject.strategy]}, subject.words)
    return plan


def job_of(experiment: str, subject: Subject, trial: Trial, folder: Path, commit: str) -> Job:
    """Return the run that brings a trial to its goal: a new one, or the one in its folder."""
    name = name_of(subject.strategy, trial)
    if (folder / SETTINGS).is_file():
        run = Run.open(folder)
        stop_at(run, stop_of(trial, subject.settings))
        config = {"resume": str(folder), "commit": commit}
        return Job(name, config, run.settings.data.clients)
    plan = plan_of(experiment, subject, trial)
    config = {**plan.config, "folder": str(folder), "commit": commit}
    return Job(name, config, plan.settings.data.clients)


def stop_of(trial: Trial, settings: AnySettings) -> int | None:
    """Return the round after which the trial's run is to stop, None for the last of all."""
    return None if trial.goal == settings.rounds else trial.goal


def stop_at(run: Run, goal: int | None) -> None:
    """Have a run stop after this round when it is gone on with."""
    settings = run.settings
    own = settings.run.model_copy(update={"stop_after": goal})
    run.settings = settings.model_copy(update={"run": own})
    run.write_settings()


def name_of(strategy: str, trial: Trial) -> str:
    """Return the name of a trial, which its run's folder has too."""
    return f"{file_name(strategy)}-{trial.number + 1:03d}"


def rounds_done(folder: Path) -> int:
    """Return how many rounds of a run are recorded."""
    return max((record["round"] for record in read_metrics(folder)), default=0)


def scores_of(folder: Path, rungs: Collection[int]) -> dict[int, float]:
    """Return the held-out scores of a run at these rounds; what is no number is infinite."""
    found = {}
    for record in read_metrics(folder):
        scores = held_out_scores(record)
        if record["round"] in rungs and scores:
            value = number(scores.get(SCORE))
            found[record["round"]] = value if math.isfinite(value) else math.inf
    return found


def held_out_scores(record: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of a round on the held-out examples, by samples if there are any."""
    ways = (record.get("gm") or {}).get(HELD_OUT) or {}
    return next((ways[way] for way in WAYS if way in ways), {})


def failure_of(folder: Path) -> str:
    """Return in one line why a run failed, as its folder says."""
    detail = look(folder).detail if folder.is_dir() else ""
    return detail.partition("\n")[0]
