"""The best of every method once more: under seeds that the search has not seen, on the test set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedivon_app.federation.run_maker import RunEnd
from fedivon_app.runs.catalogue import Found, find
from fedivon_app.runs.folder import reserved_folder
from fedivon_app.runs.plan import Action, Plan, Step, next_steps, plan_runs
from fedivon_app.runs.status import RunStatus
from fedivon_app.runs.version import commit
from fedivon_app.tuning.halving import Trial
from fedivon_app.tuning.makers import Job, Maker
from fedivon_app.tuning.search import Clock, Tell
from fedivon_app.tuning.space import words_of
from fedivon_app.tuning.study import Study, Subject


@dataclass(frozen=True, eq=False)
class Final:
    """A method's best trial, and the runs that were made of it under other seeds."""

    study: Study
    best: Trial
    steps: Sequence[Step]

    @property
    def completed(self) -> list[Found]:
        """The runs that came to their end."""
        found = [step.found for step in self.steps if step.found is not None]
        return [one for one in found if one.status is RunStatus.COMPLETED]

    def scores(self, way: str) -> list[dict[str, Any]]:
        """Return the test scores of all runs that predict in this way."""
        tests = [(found.scores or {}).get("test") or {} for found in self.completed]
        return [scores[way] for scores in tests if way in scores]


def seeds_of(subject: Subject, count: int) -> list[int]:
    """Return seeds that are not the search's."""
    first = subject.settings.seed + 1
    return list(range(first, first + count))


def final_plans(
    experiment: str, subject: Subject, best: Trial, seeds: Sequence[int], words: Sequence[str]
) -> list[Plan]:
    """Return the runs of a method's best: the experiment as it is, with these values.

    What the search changed for its own sake is not in them: `words` are all that they have besides
    the user's overrides.
    """
    overrides = [*words, *subject.own, *words_of(subject.overrides(best))]
    axes = {"strategy": [subject.strategy], "seed": [str(seed) for seed in seeds]}
    return plan_runs(experiment, axes, overrides) if seeds else []


def run_finals(
    plans: Sequence[Plan], folder: Path, maker: Maker, clock: Clock, tell: Tell
) -> list[Step]:
    """Make the runs that are left, those that failed before again, and return what all came to."""
    folder.mkdir(parents=True, exist_ok=True)
    steps = next_steps(plans, find([folder]), again_failed=True)
    todo = [step for step in steps if step.action is not Action.KEEP]
    jobs = {str(place): _job(str(place), step, commit()) for place, step in enumerate(todo)}
    waiting = list(jobs)
    under_way: list[str] = []
    while waiting or under_way:
        while waiting and maker.free:
            name = waiting.pop(0)
            tell(f"{todo[int(name)].plan.label}: the best, once more ...")
            under_way.append(name)
            maker.start(jobs[name])
        made = maker.wait()
        under_way.remove(made.name)
        _tidy(jobs[made.name])
        plan = todo[int(made.name)].plan
        clock.ran(plan.settings.strategy, plan.settings.rounds, made.seconds)
        ahead = Counter[str]()
        for name in (*waiting, *under_way):
            settings = todo[int(name)].plan.settings
            ahead[settings.strategy] += settings.rounds
        tell(f"  {plan.label}: {_end_text(made.end)}; {clock.text(ahead)}")
    return next_steps(plans, find([folder]))


def _end_text(end: RunEnd) -> str:
    reason = end.text.partition("\n")[0]
    return f"failed: {reason}" if end.failed else "completed"


def _tidy(job: Job) -> None:
    """Remove the folder of a run that did not get as far as having something in it."""
    if "folder" in job.config:
        with suppress(OSError):
            Path(job.config["folder"]).rmdir()


def _job(name: str, step: Step, code: str) -> Job:
    config = {**step.config, "commit": code}
    if step.action is Action.START:
        config["folder"] = str(reserved_folder(step.plan.settings))
    return Job(name, config, step.plan.settings.data.clients)
