"""Runs as they are compared: what their folders hold, and which of them belong together."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fedivon_app.core.client_scores import PLACES
from fedivon_app.core.settings import Settings
from fedivon_app.report.html import number
from fedivon_app.runs.folder import Run

METHOD = (
    "strategy",
    "client",
    "merge",
    "server",
)  # what belongs to a method; conditions are made of the rest
MANY = 3  # settings in a group's name; of more, only those that it takes to tell the groups apart


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run's folder holds; parts that are missing or unreadable are empty."""

    run: Run
    rounds: list[dict[str, Any]]
    summary: dict[str, Any]
    uncertainty: dict[str, Any]

    @classmethod
    def read(cls, run: Run) -> Outcome:
        rounds = [
            record for record in run.metrics() if isinstance(record, dict) and "round" in record
        ]
        return cls(
            run, rounds, _json(run.folder / "summary.json"), _json(run.folder / "uncertainty.json")
        )

    @property
    def status(self) -> str:
        return self.summary.get("status") or "unfinished"

    @property
    def detail(self) -> str:
        return self.summary.get("detail") or ("" if self.summary else "no summary.json was written")

    @property
    def seconds(self) -> float:
        times = [record.get("seconds") or {} for record in self.rounds]
        return sum(number(t.get("train") or 0) + number(t.get("evaluate") or 0) for t in times)

    @property
    def last(self) -> int:
        return self.rounds[-1]["round"] if self.rounds else 0

    @property
    def sent(self) -> float:
        return max(self.bytes.values(), default=0.0)

    def last_clients(self, whose: str) -> dict[str, Any]:
        """The last scores of the GM (`gm`) or the PMs (`pm`) on the clients' test parts: pooled under `mean`, each
        client's under `by_client`."""
        scored = ((record.get(whose) or {}).get(PLACES[whose]) for record in reversed(self.rounds))
        return next((scores for scores in scored if scores), {})

    def scores(self, part: str, way: str) -> dict[int, dict[str, Any]]:
        """The scores by round on a part (test, holdout, clients_before_training), at the mean or by Monte Carlo."""
        found = ((r["round"], ((r.get("gm") or {}).get(part) or {}).get(way)) for r in self.rounds)
        return {server_round: scores for server_round, scores in found if scores}

    def track(self, *names: str) -> dict[int, float]:
        """A number by round, such as `train_loss` or `posterior`, `largest_mean`; rounds that lack it are left out."""
        values = {}
        for record in self.rounds:
            value: Any = record
            for name in names:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                values[record["round"]] = number(value)
        return values

    @cached_property
    def bytes(self) -> dict[int, float]:
        """Bytes sent in both directions up to each round."""
        sent = [
            number(r.get("bytes_up") or 0) + number(r.get("bytes_down") or 0) for r in self.rounds
        ]
        return dict(zip([r["round"] for r in self.rounds], np.cumsum(sent).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in the seed alone. Those that failed, or did not end while others did, are left out of means."""

    label: str
    style: int
    settings: Settings
    outcomes: list[Outcome] = field(default_factory=list)
    left_out: list[Outcome] = field(default_factory=list)


def grouped(
    outcomes: Sequence[Outcome], names: Sequence[str] | None = None
) -> tuple[list[Group], str]:
    """The runs as groups in the order in which they first come, and a sentence on what the groups are named by."""
    by_run = names is not None and len(names) == len(outcomes)
    members: dict[tuple[str, str], list[Outcome]] = {}
    for name, outcome in zip(names if by_run else [""] * len(outcomes), outcomes, strict=True):
        members.setdefault(
            (name, json.dumps(shared(outcome.run.settings), sort_keys=True)), []
        ).append(outcome)
    if names is None:
        labels, named_by = label(
            [flat(shared(group[0].run.settings)) for group in members.values()]
        )
    elif by_run:
        labels = [name for name, _ in members]
        named_by = ""
    elif len(names) == len(members):
        labels = list(names)
        named_by = ""
    else:
        raise ValueError(
            f"{len(names)} names for {len(outcomes)} runs in {len(members)} groups: give one for each run or each group"
        )
    groups = []
    for style, (text, group) in enumerate(zip(labels, members.values(), strict=True)):
        completed = [o for o in group if o.status == "completed"]
        used = completed or [o for o in group if o.status != "failed" and o.rounds]
        groups.append(
            Group(text, style, group[0].run.settings, used, [o for o in group if o not in used])
        )
    return groups, named_by


@dataclass(frozen=True, eq=False)
class Crossing:
    """Methods under the same conditions: by strategy, its group under each condition, or None where it has none."""

    conditions: list[str]
    methods: dict[str, list[Group | None]]


def crossed(groups: Sequence[Group]) -> Crossing | None:
    """The groups as methods by conditions, both in the order in which they first come.

    None unless two strategies at the least share two conditions at the least, and none has two groups under one.
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
    names, _ = label([{"strategy": "", **condition} for condition in conditions.values()])
    return Crossing(
        names, {method: [own.get(name) for name in conditions] for method, own in cells.items()}
    )


def label(groups: Sequence[Mapping[str, Any]]) -> tuple[list[str], str]:
    """Names of groups, made of the settings in which they differ: the strategy first, then those within a strategy.

    Words stand alone (`ws, size`), other values with the last part of their key (`ess=500`).
    """
    strategies = list(dict.fromkeys(group["strategy"] for group in groups))
    names = [
        [group["strategy"]] if len(strategies) > 1 or len(groups) == 1 else [] for group in groups
    ]
    keys = {s: _telling([group for group in groups if group["strategy"] == s]) for s in strategies}
    for name, group in zip(names, groups, strict=True):
        name += [_short(key, group.get(key)) for key in keys[group["strategy"]]]
    shared = next(iter(keys.values()))
    if all(own == shared for own in keys.values()):
        by = ", ".join([*(["strategy"] if len(strategies) > 1 else []), *shared])
    else:
        by = "; ".join(
            [
                "strategy",
                *(f"those of {s} also by {', '.join(own)}" for s, own in keys.items() if own),
            ]
        )
    return [", ".join(name) for name in names], f"Groups are named by {by}." if by else ""


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping) and value
        found |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found


def shared(settings: Settings) -> dict[str, Any]:
    """What the runs of a group have in common: all but the seed and the place of the folder."""
    return settings.model_dump(mode="json", exclude={"seed", "run"})


def _telling(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys in which the groups differ, without those whose value follows from the experiment or another key's.

    Of many, those that suffice to tell the groups apart, the first ones first.
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


def _short(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return (
        f"{key.rpartition('.')[2]}={f'{value:g}' if isinstance(value, float) else written(value)}"
    )


def written(value: Any) -> str:
    """A setting's value on one line, as an override takes it."""
    return (
        yaml.safe_dump(value, default_flow_style=True, width=math.inf).removesuffix("...\n").strip()
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
