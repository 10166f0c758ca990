"""Reproduces the papers' tables and compares the numbers.

A table is a file conf/table/<paper>-<table>.yaml. Missing runs are made one after another in
DIR/reproduce, and their results are kept in the folder of results; the same command continues where
it was stopped. It ends with a page and a Markdown file for each table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fedivon_app.cli.parser import add_runs_folder, add_simulation, positive_number
from fedivon_app.cli.paths import given_path
from fedivon_app.cli.tables import layout
from fedivon_app.core.errors import SettingsError
from fedivon_app.federation import run_queue
from fedivon_app.federation.run_queue import Where
from fedivon_app.runs.catalogue import look
from fedivon_app.runs.check import check
from fedivon_app.runs.plan import Action, Step
from fedivon_app.runs.version import commit
from fedivon_app.tables.conditions import Wanted, check_rows, left_out, wanted
from fedivon_app.tables.filled import Filled, best_scale, fill
from fedivon_app.tables.markdown import list_row
from fedivon_app.tables.outcome import CHECKED_ROUNDS
from fedivon_app.tables.page import write_page
from fedivon_app.tables.pictures import pictures
from fedivon_app.tables.reproduce import (
    Missing,
    count_operations,
    keep,
    merged,
    missing,
    old,
    plan_lines,
    plans_of,
    renew,
    steps_of,
)
from fedivon_app.tables.result_file import ResultFiles, result_files
from fedivon_app.tables.table_file import SCALES, Table, read_table, table_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument("table", nargs="*", metavar="TABLE", help="a name in conf/table")
    parser.add_argument("--list", action="store_true", help="list all tables and their state")
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="here",
        help="as published, reduced to hours on two cores, or to minutes (default: here)",
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only these blocks, rows or methods",
    )
    parser.add_argument(
        "--seeds",
        type=positive_number,
        metavar="N",
        help="the seeds 0 to N-1 (default: the file's)",
    )
    parser.add_argument(
        "--plan", action="store_true", help="only show what would be run and how long it would take"
    )
    parser.add_argument(
        "--again", action="store_true", help="repeat runs that are older than the code"
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="include what is too much for two CPU cores, for example if you have a GPU",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="repeat only their first rounds, and keep the numbers if nothing has changed",
    )
    add_runs_folder(parser)
    parser.add_argument(
        "--results",
        type=given_path,
        metavar="DIR",
        help="where results are kept (default: docs/results of the checkout)",
    )
    add_simulation(parser, engine="inline")
    parser.add_argument("--verbose", action="store_true", help="also show Flower's log")


def run(options: argparse.Namespace) -> int:
    """Fill the tables, or list them all, and return the exit status."""
    folder = options.runs / "reproduce"
    given = options.results
    results = ResultFiles(given) if given else result_files(folder / "results")
    if options.list:
        print(list_of(results))
        return 0
    if not options.table:
        raise SettingsError("name a table, such as fedivon-table1; --list names them all")
    tables = [read_table(name) for name in options.table]
    for table in tables:
        check_rows(table, options.rows)
    if options.check:
        failed = _check_old(tables, options, folder / "checks", results)
    else:
        failed = _run_missing(tables, options, folder, results)
    if not options.plan:
        for table in tables:
            filled = fill(table, options.scale, results, options.rows)
            print(tell(filled, write_page(filled, folder, pictures(filled, folder))))
    return 1 if failed else 0


def list_of(results: ResultFiles) -> str:
    """Return all tables with their state and age, in columns."""
    rows = [list_row(best_scale(read_table(name), results)) for name in table_names()]
    plain = [[row[0].strip("`"), row[2], row[3], row[4]] for row in rows]
    return layout([["table", "state", "scale", "measured"], *plain], words=4)


def tell(filled: Filled, page: Path) -> str:
    """Return what has become of a table, in a few lines."""
    lines = ["", f"{filled.table.name}, scale {filled.scale}: {filled.state}"]
    lines += [f"  {filled.counts}"] if filled.counts else []
    lines += [f"  {judged.claim.says} This {judged.verdict}." for judged in filled.claims]
    return "\n".join([*lines, f"  page: {page}"])


def _check_old(
    tables: Sequence[Table], options: argparse.Namespace, folder: Path, results: ResultFiles
) -> bool:
    """Check what is older than the code by its first rounds, and tell whether any differ."""
    runs = old(_needed(tables, options), results)
    if not runs:
        print("nothing is older than the code")
        return False
    where = Where(cpus=options.cpus, verbose=options.verbose, engine=options.engine)
    plans = plans_of(runs, folder, [*where.settings, f"run.stop_after={CHECKED_ROUNDS}"])
    if options.plan:
        print("\n".join(f"  {one.condition.words}, seed {one.seed}" for one in runs))
        return False
    differ: list[Missing] = []

    def ended(number: int, place: Path | None) -> None:
        same = renew(runs[number], look(place) if place else None, results, commit())
        print("  the first rounds are the same" if same else "  the first rounds differ")
        differ.extend([] if same else [runs[number]])

    with run_queue.alone_in(folder):
        run_queue.sweep([Step(plan, Action.START) for plan in plans], where, ended)
    return bool(differ)


def _needed(tables: Sequence[Table], options: argparse.Namespace) -> list[Wanted]:
    """What the tables want; what is left out is told."""
    needed = []
    for table in tables:
        needed += wanted(table, options.scale, options.rows, options.seeds, options.anyway)
        if not options.anyway:
            for block, why in left_out(table, options.scale, options.rows).items():
                print(f"{table.name}, {block} is left out (--anyway runs it): {why}")
    return merged(needed)


def _run_missing(
    tables: Sequence[Table], options: argparse.Namespace, folder: Path, results: ResultFiles
) -> bool:
    """Run what is missing, and tell whether a run failed."""
    where = Where(cpus=options.cpus, verbose=options.verbose, engine=options.engine)
    needed = _needed(tables, options)
    if not options.plan:
        count_operations(needed, results)
    runs = missing(needed, results, options.again)
    if not runs:
        return False
    plans = plans_of(runs, folder, where.settings)
    check(plans, blame=True)
    print("\n".join(plan_lines(runs, plans, results)), flush=True)
    if options.plan:
        return False
    with run_queue.alone_in(folder):
        steps = steps_of(plans, folder, options.again)
        for one, step in zip(runs, steps, strict=True):
            keep(one, step.found, results)

        def ended(number: int, place: Path | None) -> None:
            keep(runs[number], look(place) if place else None, results)

        run_queue.sweep(steps, where, ended)
    count_operations(needed, results)
    return bool(missing(needed, results))
