"""Runs every combination of values and compares the results.

Values are read as YAML and split at commas, except inside brackets and quotes. The runs are made
one after another in DIR/sweep-EXPERIMENT[-NAME]; the same command continues where it was stopped
and keeps the runs that are complete.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from fedivon_app.cli.launching import where_of
from fedivon_app.cli.parser import add_experiment, add_launch, add_start, positive_number
from fedivon_app.cli.tables import MISSING, WAYS, ScoredRow, scores_table, way_of
from fedivon_app.federation import run_queue
from fedivon_app.report.pages import write_comparison
from fedivon_app.runs.catalogue import PARTS, Found, find
from fedivon_app.runs.check import check
from fedivon_app.runs.plan import (
    Plan,
    Step,
    folder_name,
    next_steps,
    overview,
    plan_runs,
    read_grid,
    sweep_axes,
    unweighted_rules,
)
from fedivon_app.runs.status import RunStatus
from fedivon_app.runs.winner import more_seeds, verdict_lines

ENDED_WELL = (RunStatus.COMPLETED, RunStatus.STOPPED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_experiment(parser)
    add_launch(parser, engine="inline")
    add_start(parser)
    parser.add_argument(
        "grid",
        nargs="+",
        metavar="KEY=V1,V2,...",
        help="a setting by its dotted name, and its values",
    )
    parser.add_argument(
        "--seeds",
        type=positive_number,
        metavar="N",
        help="the seeds 0 to N-1 (default: the experiment's)",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="added to the folder's name, for another sweep"
    )
    parser.add_argument("--again-failed", action="store_true", help="repeat the runs that failed")


def run(options: argparse.Namespace) -> int:
    """Make the runs that are left of a sweep, compare all, and return the exit status."""
    where = where_of(options)
    folder = options.runs / folder_name(options.experiment, options.name)
    axes = sweep_axes(read_grid(options.grid), options.strategy, options.seeds)
    overrides = [*where.settings, *options.set, f"run.folder={folder}"]
    plans = plan_runs(options.experiment, axes, overrides, blame=True, remote=bool(where.superlink))
    for rule in unweighted_rules(axes, plans):
        print(f"the rule {rule} ignores the weights: it runs once, not once per merge.weighting")
    check(plans, blame=True, remote=bool(where.superlink))
    with run_queue.alone_in(folder):
        steps = next_steps(plans, find([folder]), options.again_failed)
        print(f"{overview(steps)}; folder {folder}", flush=True)
        run_queue.sweep(steps, where)
        steps = next_steps(plans, find([folder]))
        print("\n".join(sweep_lines(steps)), flush=True)
        made = [step.found.run for step in steps if step.found and step.found.run]
        if made:
            print(f"comparison: {write_comparison(made, folder)}")
    return 0 if all(_ended_well(step.found) for step in steps) else 1


def sweep_lines(steps: Sequence[Step]) -> list[str]:
    """Return what a sweep has to show at its end.

    This is the table of the runs that ended well, and a line for each other one.
    """
    good = [step for step in steps if _ended_well(step.found)]
    lines = ["", sweep_table(good), ""] if good else []
    values = _by_values(good)
    used = {seed for seeds in values.values() for seed in seeds}
    if said := verdict_lines(values, f"--seeds {len(more_seeds(used))}"):
        lines += [*said, ""]
    for step in steps:
        if _ended_well(step.found):
            continue
        status = step.found.status if step.found else "not run"
        detail = step.found.detail.splitlines()[:1] if step.found else []
        lines.append(": ".join([f"{step.plan.label} {status}", *detail]).strip())
    return lines


def _by_values(steps: Iterable[Step]) -> dict[str, dict[int, dict[str, float]]]:
    """The scores of the runs by their values, the seed apart, and by seed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for step in steps:
        values = [f"{key}={value}" for key, value in step.plan.values.items() if key != "seed"]
        ways = _scores(step.found)
        if scores := ways.get("mc") or ways.get("mean"):
            label = " ".join(values) or step.plan.settings.strategy
            found.setdefault(label, {})[step.plan.settings.seed] = scores
    return found


def sweep_table(steps: Iterable[Step]) -> str:
    """Return a table with a line for every combination of values and way of predicting.

    Under several seeds it has the mean and the standard deviation over them. The text is empty
    where no run was scored.
    """
    steps = list(steps)
    keys = list(dict.fromkeys(key for step in steps for key in step.plan.values if key != "seed"))
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for step in steps:
        groups.setdefault(_values(step.plan, keys), []).append(_scores(step.found))
    rows = []
    for values, runs in groups.items():
        for way in WAYS:
            scored = [one[way] for one in runs if way in one]
            if scored:
                model = way_of(way, scored[0].get("samples"))
                rows.append(ScoredRow([*values, str(len(scored)), model], scored))
    own = [path for step in steps for path in step.plan.settings.evaluation.scores]
    return scores_table([*keys, "seeds", "model"], rows, own=own) if rows else ""


def _values(plan: Plan, keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(plan.values.get(key, MISSING) for key in keys)


def _scores(found: Found | None) -> dict[str, Any]:
    """The scores of a run by way, on the first part of the data that it was scored on."""
    scores = (found.scores if found else None) or {}
    return next((scores[part] for part in PARTS if scores.get(part)), {})


def _ended_well(found: Found | None) -> bool:
    return found is not None and found.status in ENDED_WELL
