"""Filling tables: what is missing of them, running that, and keeping what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import data_size, duration
from fedivon_app.plurals import counted, numbered
from fedivon_app.runs.catalogue import Found, find
from fedivon_app.runs.fingerprint import changed, code_of
from fedivon_app.runs.plan import Plan, Step, next_steps, plan_runs
from fedivon_app.runs.records import read_code
from fedivon_app.runs.status import RunStatus
from fedivon_app.tables.conditions import Condition, Wanted
from fedivon_app.tables.estimate import estimate
from fedivon_app.tables.flops import gigaflops
from fedivon_app.tables.outcome import outcome_of, same_start
from fedivon_app.tables.result_file import ResultFiles, changed_settings

ENDED = (RunStatus.COMPLETED, RunStatus.FAILED)


@dataclass(frozen=True)
class Missing:
    """A run that a table needs and that nothing is kept of."""

    wanted: Wanted
    seed: int

    @property
    def condition(self) -> Condition:
        """Return the condition of the run."""
        return self.wanted.condition


def merged(wanted: Iterable[Wanted]) -> list[Wanted]:
    """Return what several tables want, each condition once, with the most seeds of it."""
    found: dict[Condition, Wanted] = {}
    for one in wanted:
        other = found.get(one.condition, one)
        seeds = max(one.seeds, other.seeds)
        found[one.condition] = replace(one, seeds=seeds, flops=one.flops or other.flops)
    return list(found.values())


def missing(wanted: Iterable[Wanted], results: ResultFiles, again: bool = False) -> list[Missing]:
    """Return the runs that nothing is kept of, seed by seed.

    What was measured under other settings is missing; what was measured by other code is so only if
    it is to be run `again`.
    """
    listed = list(wanted)
    most = max((one.seeds for one in listed), default=0)
    return [
        Missing(one, seed)
        for seed in range(most)
        for one in listed
        if seed < one.seeds and not _kept(one, seed, results, again)
    ]


def _kept(wanted: Wanted, seed: int, results: ResultFiles, again: bool) -> bool:
    measured = results.find(wanted.condition)
    if measured is None or seed not in measured.runs:
        return False
    run = measured.runs[seed]
    if changed_settings(measured.settings, wanted.condition):
        return False
    return not (again and changed(run.code, code_of(wanted.condition.settings())))


def plans_of(runs: Sequence[Missing], folder: Path, overrides: Sequence[str]) -> list[Plan]:
    """Return the plans of these runs, each experiment's in a folder of its own."""
    plans = []
    for one in runs:
        condition = one.condition
        words = [*overrides, *condition.set, f"run.folder={folder / condition.experiment}"]
        axes = {"strategy": [condition.strategy], "seed": [str(one.seed)]}
        (plan,) = plan_runs(condition.experiment, axes, words, blame=True)
        told = dict(word.partition("=")[::2] for word in condition.set)
        values = {"experiment": condition.experiment, **told, **plan.values}
        plans.append(replace(plan, values=values))
    return plans


def steps_of(plans: Sequence[Plan], folder: Path, again: bool = False) -> list[Step]:
    """Return what is to be done about the plans; with `again`, runs of other code do not count."""
    there = find([folder]) if folder.is_dir() else []
    return next_steps(plans, [found for found in there if not (again and _is_old(found))])


def _is_old(found: Found) -> bool:
    modules = read_code(found.folder).get("modules", {})
    return not modules or found.run is None or bool(changed(modules, code_of(found.run.settings)))


def keep(one: Missing, found: Found | None, results: ResultFiles) -> bool:
    """Keep what came of a run in the files of results; tell whether there was something to keep."""
    if found is None or found.status not in ENDED or found.run is None:
        return False
    results.add(one.condition, found.run.settings, outcome_of(found.run))
    return True


def count_operations(wanted: Iterable[Wanted], results: ResultFiles) -> None:
    """Add the floating-point operations to kept runs of which they are wanted and not yet known.

    They follow from the settings, so that nothing has to be run for them.
    """
    for one in wanted:
        measured = results.find(one.condition) if one.flops else None
        if measured is None or changed_settings(measured.settings, one.condition):
            continue
        for seed, run in measured.runs.items():
            if run.gigaflops is None and seed < one.seeds:
                settings = one.condition.settings(seed)
                known = run.model_copy(update={"gigaflops": gigaflops(settings)})
                results.add(one.condition, settings, known)


def old(wanted: Iterable[Wanted], results: ResultFiles) -> list[Missing]:
    """Return a run of each condition whose numbers are older than the code, but not its settings.

    It is the newest of which the first rounds are known: of one that was made on another processor
    these may differ, whatever the code, for sums are rounded differently there.
    """
    found = []
    for one in wanted:
        measured = results.find(one.condition)
        if measured is None or changed_settings(measured.settings, one.condition):
            continue
        now = code_of(one.condition.settings())
        runs = measured.runs.values()
        known = [run for run in runs if run.start and not run.failed]
        if known and any(changed(run.code, now) for run in runs):
            newest = max(known, key=lambda run: (run.date, run.seed))
            found.append(Missing(one, newest.seed))
    return found


def renew(one: Missing, found: Found | None, results: ResultFiles, commit: str) -> bool:
    """Compare the first rounds of a run that was begun again with those of the run that is kept.

    If they are the same, the numbers of the condition count as those of today's code, and say so.
    """
    measured = results.find(one.condition)
    if measured is None or found is None or found.run is None:
        return False
    if not same_start(measured.runs[one.seed], outcome_of(found.run)):
        return False
    now = code_of(one.condition.settings())
    for run in measured.runs.values():
        if changed(run.code, now):
            update = {"code": now, "checked": commit}
            results.add(one.condition, found.run.settings, run.model_copy(update=update))
    return True


def plan_lines(runs: Sequence[Missing], plans: Sequence[Plan], results: ResultFiles) -> list[str]:
    """Return what will be run, how long it may take and how many bytes it moves, in lines."""
    seeds: dict[Condition, list[int]] = {}
    settings: dict[Condition, AnySettings] = {}
    for one, plan in zip(runs, plans, strict=True):
        seeds.setdefault(one.condition, []).append(one.seed)
        settings[one.condition] = plan.settings
    return list(_lines(seeds, settings, results))


def _lines(
    seeds: Mapping[Condition, Sequence[int]],
    settings: Mapping[Condition, AnySettings],
    results: ResultFiles,
) -> Iterable[str]:
    seconds = 0.0
    sent = 0.0
    unknown = 0
    for condition, numbers in seeds.items():
        cost = estimate(condition, settings[condition], results)
        count = len(numbers)
        sent += count * cost.bytes
        if cost.seconds is None:
            unknown += count
            time = "time not known before its first round"
        else:
            seconds += count * cost.seconds
            time = f"about {duration(cost.seconds)} each"
        which = numbered("seed", numbers)
        yield f"  {condition.words}\n      {which}, {time}, {data_size(cost.bytes)} each"
    total = f"about {duration(seconds)}" if seconds else "no time is known yet"
    more = f", and {unknown} whose time is not known" if unknown and seconds else ""
    runs = counted(sum(map(len, seeds.values())), "run")
    yield f"in all {runs}: {total}{more}; {data_size(sent)} are moved"
