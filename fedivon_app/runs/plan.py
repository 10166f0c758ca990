"""What a sweep is to run, and what is left of it: no Flower here, see series.py for that.

Everything that varies is an axis: a dotted name and its values, as written on the command line. A run is one value of
each; its name among the runs of a sweep is that of its values.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from fedivon_app.core.settings import Settings, SettingsError, compose
from fedivon_app.methods import settings_of
from fedivon_app.runs.catalogue import Found
from fedivon_app.strategies.aggregation import RULES

Axes = Mapping[str, Sequence[str]]
WEIGHTING = "merge.weighting"
OPENING = "[{("
CLOSING = "]})"
QUOTES = "\"'"


@dataclass(frozen=True)
class Plan:
    """A run to be made: its settings, Flower's run config for it, and its value on every axis that matters to it."""

    settings: Settings
    config: dict[str, Any]
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`fedivon merge.rule=ws seed 1`."""
        words = [
            f"{key}={value}"
            for key, value in self.values.items()
            if key not in ("strategy", "seed")
        ]
        seed = [f"seed {self.settings.seed}"] if "seed" in self.values else []
        return " ".join(
            [*([self.settings.strategy] if "strategy" in self.values else []), *words, *seed]
        )


@dataclass(frozen=True)
class Step:
    """What a sweep does about a plan: `start` it, `resume` the run that was found, or `keep` that run as it is."""

    plan: Plan
    action: Literal["start", "resume", "keep"]
    found: Found | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Flower's run config."""
        return {"resume": str(self.found.folder)} if self.action == "resume" else self.plan.config


def split_values(text: str) -> list[str]:
    """`a,[1,2],"b,c"` cut at the commas outside of brackets and quotes."""
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
    """`merge.rule=nwa,ws client.epochs=1,5` as axes."""
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
    """Of a sweep's folder."""
    if name is not None and not re.fullmatch(r"[\w.+-]+", name):
        raise SettingsError(
            f"the name {name!r} is to be part of a folder's: use letters, digits, dots and dashes"
        )
    return f"sweep-{experiment}" + (f"-{name}" if name else "")


def sweep_axes(
    grid: Axes, strategies: Sequence[str] | None, seeds: int | None
) -> dict[str, list[str]]:
    """The axes of a sweep: seeds change last, so that a sweep that is stopped has compared all else under some."""
    axes: dict[str, list[str]] = {}
    for key, option, values in (
        ("seed", "--seeds", range(seeds or 0)),
        ("strategy", "--strategy", strategies or ()),
    ):
        if values and key in grid:
            raise SettingsError(f"{key} is given twice: as {key}=... and as {option}")
        axes |= {key: [str(value) for value in values]} if values else {}
    return axes | grid


def plan_runs(
    experiment: str, axes: Axes, overrides: Sequence[str] = (), blame: bool = False
) -> list[Plan]:
    """A plan for every combination of values, the last axis fastest; equal ones once. With `blame`, a complaint about
    one of them begins with its values."""
    plans: list[Plan] = []
    seen: list[dict[str, Any]] = []
    for chosen in product(*axes.values()):
        values = dict(zip(axes, chosen, strict=True))
        words = [*overrides, *(f"{key}={value}" for key, value in values.items())]
        try:
            settings = compose(settings_of, experiment, overrides=words)
        except SettingsError as error:
            told = " ".join(f"{key}={value}" for key, value in values.items())
            raise SettingsError(f"{told}: {error}" if blame and told else str(error)) from None
        clients = settings.data.clients or 2
        settings = settings.model_copy(
            update={"data": settings.data.model_copy(update={"clients": clients})}
        )
        if (identity := identity_of(settings)) not in seen:
            seen.append(identity)
            config = {"experiment": experiment, "strategy": settings.strategy}
            config["set"] = shlex.join([*words, f"data.clients={clients}"])
            if ignores_weights(settings) and len(axes.get(WEIGHTING, ())) > 1:
                del values[WEIGHTING]
            plans.append(Plan(settings, config, values))
    return plans


def check(plans: Iterable[Plan], blame: bool = False) -> None:
    """Raises what is wrong with the data or the model of a plan; each different pair of them is looked at once."""
    from fedivon_app.datasets.sources import DataError
    from fedivon_app.server.setup import prepare

    seen = set()
    for plan in plans:
        settings = plan.settings
        part = settings.data.model_dump_json(), settings.model.model_dump_json(), settings.seed
        if part in seen:
            continue
        seen.add(part)
        try:
            prepare(settings)
        except (SettingsError, DataError) as error:
            raise SettingsError(
                f"{plan.label}: {error}" if blame and plan.label else str(error)
            ) from None


def ignores_weights(settings: Settings) -> bool:
    """Whether the merge gives the same under every weighting."""
    merge = getattr(settings, "merge", None)
    rule = RULES.get(getattr(merge, "rule", None))
    return rule is not None and not getattr(rule, "weighted", True)


def unweighted_rules(axes: Axes, plans: Iterable[Plan]) -> list[str]:
    """The rules of these plans that a sweep over several weightings runs only once."""
    if len(axes.get(WEIGHTING, ())) < 2:
        return []
    return list(
        dict.fromkeys(plan.settings.merge.rule for plan in plans if ignores_weights(plan.settings))
    )


def identity_of(settings: Settings) -> dict[str, Any]:
    """What a run's numbers depend on: the settings without the folder, and without a weighting that is ignored."""
    values = settings.model_dump(mode="json")
    del values["run"]["folder"]
    if ignores_weights(settings):
        del values["merge"]["weighting"]
    return values


def next_steps(
    plans: Iterable[Plan], there: Iterable[Found], again_failed: bool = False
) -> list[Step]:
    """For every plan the run that was made of it, if there is one, and what is left to do.

    Of several equal runs a completed one counts most, then one to go on with, then a failed one; then the newest.
    """
    readable = [
        (identity_of(found.run.settings), found) for found in there if found.run is not None
    ]
    steps = []
    for plan in plans:
        identity = identity_of(plan.settings)
        equal = [found for other, found in readable if other == identity]  # newest last
        ranks = [
            ({"completed": 2, "failed": 0}.get(found.status, 1), place)
            for place, found in enumerate(equal)
        ]
        found = equal[max(ranks)[1]] if equal else None
        if found is None or (found.status == "failed" and again_failed):
            steps.append(Step(plan, "start"))
        else:
            steps.append(
                Step(plan, "keep" if found.status in ("completed", "failed") else "resume", found)
            )
    return steps


def overview(steps: Sequence[Step]) -> str:
    """A line about what is there already."""
    kept = [step for step in steps if step.action == "keep"]
    failed = sum(step.found.status == "failed" for step in kept)
    resumed = sum(step.action == "resume" for step in steps)
    parts = [f"{len(kept) - failed} completed before"] if len(kept) > failed else []
    parts += [f"{resumed} to go on with"] if resumed else []
    parts += [f"{failed} failed before (--again-failed runs them again)"] if failed else []
    return f"{len(steps)} run{'s' * (len(steps) != 1)}" + (f": {', '.join(parts)}" if parts else "")


def left(durations: Sequence[float], number: int) -> float | None:
    """Seconds that this many runs will take if they take as long as those before; None if there were none."""
    return number * sum(durations) / len(durations) if durations else None


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 05 min`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
