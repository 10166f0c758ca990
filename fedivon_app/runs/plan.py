"""What a sweep is to run, and what is left of it. No Flower here: federation/run_queue.py has that.

Everything that varies is an axis: a dotted name and its values, as written on the command line. A
run is one value of each; its name among the runs of a sweep is that of its values.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.registry import is_import_path
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import natural_clients
from fedivon_app.methods import settings_of
from fedivon_app.plurals import counted
from fedivon_app.runs.catalogue import Found
from fedivon_app.runs.status import RunStatus
from fedivon_app.strategies.aggregation import RULES

Axes = Mapping[str, Sequence[str]]
WEIGHTING = "merge.weighting"
OPENING = "[{("
CLOSING = "]})"
QUOTES = "\"'"


@dataclass(frozen=True)
class Plan:
    """A run to be made: its settings, Flower's run config for it, and its values on the axes."""

    settings: AnySettings
    config: dict[str, str]
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The run's values in a line, such as `fedivon merge.rule=ws seed 1`."""
        words = [self.settings.strategy] if "strategy" in self.values else []
        words += [
            f"{key}={value}"
            for key, value in self.values.items()
            if key not in ("strategy", "seed")
        ]
        words += [f"seed {self.settings.seed}"] if "seed" in self.values else []
        return " ".join(words)


class Action(StrEnum):
    """What a sweep does about a plan."""

    START = "start"
    RESUME = "resume"
    KEEP = "keep"


@dataclass(frozen=True)
class Step:
    """A plan and what a sweep does about it: start it, or resume or keep the run that was found."""

    plan: Plan
    action: Action
    found: Found | None = None

    @property
    def config(self) -> dict[str, str]:
        """Flower's run config."""
        if self.action is Action.RESUME and self.found is not None:
            return {"resume": str(self.found.folder)}
        return self.plan.config


def split_values(text: str) -> list[str]:
    """Cut `a,[1,2],"b,c"` at the commas outside of brackets and quotes."""
    values = [""]
    depth = 0
    quote = ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        elif letter in OPENING:
            depth += 1
        elif letter in CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            values.append("")
            continue
        values[-1] += letter
    return [value.strip() for value in values]


def read_grid(words: Iterable[str]) -> dict[str, list[str]]:
    """Return words such as `merge.rule=nwa,ws client.epochs=1,5` as axes."""
    axes: dict[str, list[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        values = split_values(text)
        if not (key and equals):
            raise SettingsError(
                f"{word!r} is not of the form name=value,value,..., such as merge.rule=nwa,ws"
            )
        if not all(values):
            raise SettingsError(f"{word!r} has an empty value between its commas")
        if key in axes:
            raise SettingsError(f"{key} is given twice: put all of its values after one {key}=")
        if key in ("experiment", "run.folder"):
            raise SettingsError(f"a sweep cannot vary {key}: all of its runs share it")
        axes[key] = values
    return axes


def folder_name(experiment: str, name: str | None) -> str:
    """Return the name of a sweep's folder."""
    if name is not None and not re.fullmatch(r"[\w.+-]+", name):
        raise SettingsError(
            f"the name {name!r} becomes part of a folder's name: use letters, digits, dots and "
            "dashes"
        )
    return f"sweep-{experiment}" + (f"-{name}" if name else "")


def sweep_axes(
    grid: Axes, strategies: Sequence[str] | None, seeds: int | None
) -> dict[str, Sequence[str]]:
    """Return the axes of a sweep.

    Seeds change last, so that a sweep that is stopped has compared all else under some of them.
    """
    axes: dict[str, Sequence[str]] = {}
    if seeds:
        axes["seed"] = [str(seed) for seed in range(seeds)]
    if strategies:
        axes["strategy"] = list(strategies)
    options = {"seed": "--seeds", "strategy": "--strategy"}
    for key in axes:
        if key in grid:
            raise SettingsError(f"{key} is given twice: as {key}=... and as {options[key]}")
    return axes | dict(grid)


def plan_runs(
    experiment: str,
    axes: Axes,
    overrides: Sequence[str] = (),
    blame: bool = False,
    remote: bool = False,
) -> list[Plan]:
    """Return a plan for every combination of values, the last axis fastest, and equal ones once.

    With `blame`, a complaint about one of them begins with its values. Paths from the working
    folder are made absolute, unless the runs are `remote`, where paths are the server's.
    """
    plans: list[Plan] = []
    seen: list[dict[str, Any]] = []
    for chosen in product(*axes.values()):
        values = dict(zip(axes, chosen, strict=True))
        told = [f"{key}={value}" for key, value in values.items()]
        words = [*overrides, *told]
        try:
            settings = compose(settings_of, experiment, overrides=words)
            if not remote and (paths := absolute_paths(settings)):
                words += paths
                settings = compose(settings_of, experiment, overrides=words)
        except SettingsError as error:
            blamed = f"{' '.join(told)}: " if blame and told else ""
            raise SettingsError(f"{blamed}{error}") from None
        clients = settings.data.clients or (None if remote else natural_clients(settings)) or 2
        data = settings.data.model_copy(update={"clients": clients})
        settings = settings.model_copy(update={"data": data})
        identity = identity_of(settings)
        if identity in seen:
            continue
        seen.append(identity)
        config = {
            "experiment": experiment,
            "strategy": settings.strategy,
            "set": shlex.join([*words, f"data.clients={clients}"]),
        }
        if ignores_weights(settings) and len(axes.get(WEIGHTING, ())) > 1:
            del values[WEIGHTING]
        plans.append(Plan(settings, config, values))
    return plans


def absolute_paths(settings: AnySettings) -> list[str]:
    """Return overrides for the paths of files that are there, seen from the working folder.

    The processes of a run may have another one.
    """
    named = {
        "data.path": settings.data.path,
        "data.root": settings.data.root,
        "evaluation.ood_path": settings.evaluation.ood_path,
    }
    return [
        f"{key}={Path(path).absolute()}"
        for key, path in named.items()
        if path and not Path(path).is_absolute() and Path(path).exists()
    ]


def ignores_weights(settings: AnySettings) -> bool:
    """Tell whether the merge gives the same under every weighting."""
    name = settings.merge.rule
    if name not in RULES and not is_import_path(name):
        return False  # a rule that is a method's own, such as BayesADMM's
    return not RULES.find(name).weighted


def unweighted_rules(axes: Axes, plans: Iterable[Plan]) -> list[str]:
    """Return the rules of these plans that a sweep over several weightings runs only once."""
    if len(axes.get(WEIGHTING, ())) < 2:
        return []
    rules = [plan.settings.merge.rule for plan in plans if ignores_weights(plan.settings)]
    return list(dict.fromkeys(rules))


def identity_of(settings: AnySettings) -> dict[str, Any]:
    """Return what a run's numbers depend on.

    These are the settings without the folder, and without a weighting that is ignored.
    """
    values = settings.model_dump(mode="json")
    del values["run"]["folder"]
    if ignores_weights(settings):
        del values["merge"]["weighting"]
    return values


def next_steps(
    plans: Iterable[Plan], there: Iterable[Found], again_failed: bool = False
) -> list[Step]:
    """Return for every plan the run that was made of it, if there is one, and what is left to do.

    Of several equal runs a completed one counts most, then one to go on with, then a failed one;
    then the newest, which is the last of them.
    """
    made = [(found, identity_of(found.run.settings)) for found in there if found.run is not None]
    steps = []
    for plan in plans:
        identity = identity_of(plan.settings)
        equal = [found for found, other in made if other == identity]
        equal.sort(key=_rank)  # the newest of a rank stays the last of it
        steps.append(_step(plan, equal[-1] if equal else None, again_failed))
    return steps


def _rank(found: Found) -> int:
    return {RunStatus.COMPLETED: 2, RunStatus.FAILED: 0}.get(found.status, 1)


def _step(plan: Plan, found: Found | None, again_failed: bool) -> Step:
    failed = found is not None and found.status is RunStatus.FAILED
    if found is None or (failed and again_failed):
        return Step(plan, Action.START)
    ended = failed or found.status is RunStatus.COMPLETED
    return Step(plan, Action.KEEP if ended else Action.RESUME, found)


def overview(steps: Sequence[Step]) -> str:
    """Return a line about what is there already."""
    kept = [step.found for step in steps if step.action is Action.KEEP and step.found is not None]
    failed = sum(found.status is RunStatus.FAILED for found in kept)
    resumed = sum(step.action is Action.RESUME for step in steps)
    parts = [f"{len(kept) - failed} completed before"] if len(kept) > failed else []
    parts += [f"{resumed} to go on with"] if resumed else []
    parts += [f"{failed} failed before (--again-failed runs them again)"] if failed else []
    return counted(len(steps), "run") + (f": {', '.join(parts)}" if parts else "")


def left(durations: Sequence[float], number: int) -> float | None:
    """Return the seconds that so many runs will take if they take as long as those before.

    It is None if there were none before.
    """
    return number * sum(durations) / len(durations) if durations else None
