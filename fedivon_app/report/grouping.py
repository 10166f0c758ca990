"""Runs as they are compared: which of them belong together, and what groups of them are called."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import yaml

from fedivon_app.core.dotted import flat
from fedivon_app.core.errors import UserError
from fedivon_app.core.settings import AnySettings
from fedivon_app.plurals import counted
from fedivon_app.report.results import RunResults
from fedivon_app.report.style import Key
from fedivon_app.runs.status import RunStatus

# The sections that belong to a method; conditions are made of the rest.
METHOD = ("strategy", "client", "merge", "server")
MANY = 3  # settings in a group's name; of more, only those that it takes to tell the groups apart


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in the seed alone.

    Those that failed, or did not end while others did, are left out of means.
    """

    label: str
    style: int
    settings: AnySettings
    results: list[RunResults] = field(default_factory=list)
    left_out: list[RunResults] = field(default_factory=list)

    @property
    def members(self) -> list[RunResults]:
        """Return all runs of the group, those that are left out of means at the end."""
        return self.results + self.left_out

    @property
    def key(self) -> Key:
        """Return what a legend says of the group."""
        return Key(self.label, self.style)


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups of runs, and a sentence on what they are named by, which may be empty."""

    groups: list[Group]
    named_by: str = ""


@dataclass(frozen=True)
class Labels:
    """Names of groups, and a sentence on what they are made of, which may be empty."""

    texts: list[str]
    named_by: str = ""


def grouped(results: Sequence[RunResults], names: Sequence[str] | None = None) -> Grouping:
    """Return the runs as groups, in the order in which they first come.

    `names` are of the runs or of the groups; without them, groups are named by their settings.
    """
    by_run = list(names) if names is not None and len(names) == len(results) else None
    members: dict[tuple[str, str], list[RunResults]] = {}
    for name, one in zip(by_run or [""] * len(results), results, strict=True):
        alike = json.dumps(shared(one.settings), sort_keys=True)
        members.setdefault((name, alike), []).append(one)
    if names is None:
        labels = label([flat(shared(group[0].settings)) for group in members.values()])
    elif by_run is not None:
        labels = Labels([name for name, _ in members])
    elif len(names) == len(members):
        labels = Labels(list(names))
    else:
        raise UserError(
            f"{counted(len(names), 'name')} for {counted(len(results), 'run')} in "
            f"{counted(len(members), 'group')}: "
            "give one for each run or each group"
        )
    groups = [
        _group(text, style, group)
        for style, (text, group) in enumerate(zip(labels.texts, members.values(), strict=True))
    ]
    return Grouping(groups, labels.named_by)


def _group(text: str, style: int, members: Sequence[RunResults]) -> Group:
    completed = [one for one in members if one.status == RunStatus.COMPLETED]
    used = completed or [one for one in members if one.status != RunStatus.FAILED and one.rounds]
    return Group(
        label=text,
        style=style,
        settings=members[0].settings,
        results=used,
        left_out=[one for one in members if one not in used],
    )


@dataclass(frozen=True, eq=False)
class Crossing:
    """Methods under the same conditions: by strategy, its group under each condition, or None."""

    conditions: list[str]
    methods: dict[str, list[Group | None]]


def crossed(groups: Sequence[Group]) -> Crossing | None:
    """Return the groups as methods by conditions, both in the order in which they first come.

    It is None unless two strategies at the least share two conditions at the least, and none has
    two groups under one.
    """
    conditions: dict[str, dict[str, Any]] = {}
    cells: dict[str, dict[str, Group]] = {}
    for group in groups:
        condition = {
            key: value for key, value in shared(group.settings).items() if key not in METHOD
        }
        name = json.dumps(condition, sort_keys=True)
        own = cells.setdefault(group.settings.strategy, {})
        if name in own:
            return None
        conditions[name] = flat(condition)
        own[name] = group
    if not any(
        len(one.keys() & other.keys()) > 1 for one, other in combinations(cells.values(), 2)
    ):
        return None
    labels = label([{"strategy": "", **condition} for condition in conditions.values()])
    return Crossing(
        conditions=labels.texts,
        methods={method: [own.get(name) for name in conditions] for method, own in cells.items()},
    )


def label(groups: Sequence[Mapping[str, Any]]) -> Labels:
    """Return names of groups, made of the settings in which they differ.

    The strategy comes first, then the settings within a strategy. Words stand alone (`ws, size`),
    other values with the last part of their key (`ess=500`).
    """
    strategies = list(dict.fromkeys(group["strategy"] for group in groups))
    keys = {s: _telling([group for group in groups if group["strategy"] == s]) for s in strategies}
    texts = []
    for group in groups:
        strategy = group["strategy"]
        first = [strategy] if len(strategies) > 1 or len(groups) == 1 else []
        texts.append(", ".join([*first, *(_short(key, group.get(key)) for key in keys[strategy])]))
    common = next(iter(keys.values()))
    if all(own == common for own in keys.values()):
        by = ", ".join([*(["strategy"] if len(strategies) > 1 else []), *common])
    else:
        also = [f"those of {s} also by {', '.join(own)}" for s, own in keys.items() if own]
        by = "; ".join(["strategy", *also])
    return Labels(texts, f"Groups are named by {by}." if by else "")


def shared(settings: AnySettings) -> dict[str, Any]:
    """Return what the runs of a group have in common: all but the seed and the folder."""
    return settings.model_dump(mode="json", exclude={"seed", "run"})


def written(value: object) -> str:
    """Return a setting's value on one line, as an override takes it."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf)
    return text.removesuffix("...\n").strip()


def _telling(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which the groups differ, without those whose value follows from the
    experiment or another key's.

    Of many, only those are kept that suffice to tell the groups apart, the first ones first.
    """
    every = dict.fromkeys(key for group in groups for key in group)
    values = {key: [json.dumps(group.get(key)) for group in groups] for key in every}
    differ = [key for key in every if len(set(values[key])) > 1]

    def follows(key: str, other: str) -> bool:
        pairs = set(zip(values[key], values[other], strict=True))
        own = set(values[key])
        others = set(values[other])
        return len(pairs) == len(others) and (other == "experiment" or len(own) < len(others))

    keys = [
        k
        for k in differ
        if k == "experiment" or not any(follows(k, other) for other in differ if other != k)
    ]
    for key in reversed([k for k in keys if k != "experiment"]) if len(keys) > MANY else ():
        rest = [k for k in keys if k != key]
        if len(set(zip(*(values[k] for k in rest), strict=True))) == len(groups):
            keys = rest
    return keys


def _short(key: str, value: object) -> str:
    if isinstance(value, str):
        return value
    text = f"{value:g}" if isinstance(value, float) else written(value)
    return f"{key.rpartition('.')[2]}={text}"
