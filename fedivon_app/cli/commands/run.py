"""Runs an experiment, with one or several methods and seeds."""

from __future__ import annotations

import argparse

from fedivon_app.cli.launching import launch_all, where_of
from fedivon_app.cli.parser import add_experiment, add_launch, add_start
from fedivon_app.federation.run_queue import Launch
from fedivon_app.runs.check import check
from fedivon_app.runs.plan import plan_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_experiment(parser)
    add_launch(parser)
    add_start(parser)
    parser.add_argument("--seed", nargs="+", type=int, metavar="N", help="one run per seed")


def run(options: argparse.Namespace) -> int:
    """Make the runs of an experiment, and return the exit status."""
    where = where_of(options)
    chosen = {"strategy": options.strategy, "seed": options.seed}
    axes = {key: [str(value) for value in values] for key, values in chosen.items() if values}
    overrides = [*where.settings, *options.set, f"run.folder={options.runs}"]
    plans = plan_runs(options.experiment, axes, overrides, remote=bool(where.superlink))
    check(plans, remote=bool(where.superlink))
    launches = [Launch(settings=plan.settings, config=plan.config) for plan in plans]
    return launch_all(launches, where)
