"""Continues stopped runs from their last checkpoints.

A run that is complete is left alone, unless you give it more rounds: --set rounds=200.
"""

from __future__ import annotations

import argparse
import shlex

from fedivon_app.cli.launching import launch_all, where_of
from fedivon_app.cli.parser import add_launch, add_runs
from fedivon_app.cli.paths import near
from fedivon_app.federation.run_queue import Launch
from fedivon_app.runs.check import check_resumable
from fedivon_app.runs.folder import Run
from fedivon_app.runs.resuming import (
    changed,
    check_not_begun_again,
    consequence,
    rounds_done,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_runs(parser)
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="settings that may change in mid-run, such as rounds=200",
    )
    add_launch(parser)


def run(options: argparse.Namespace) -> int:
    """Go on with the runs, and return the exit status."""
    launches = []
    for folder in options.run:
        one = Run.open(folder)
        check_not_begun_again(one)
        settings = changed(one, options.set)
        done = rounds_done(one)
        if done >= settings.rounds:
            print(
                f"{near(folder)} is completed, with {done} of {settings.rounds} rounds done; "
                f"to add rounds: fedivon resume {near(folder)} --set rounds={2 * done}"
            )
            continue
        if not options.superlink:
            check_resumable(one, settings)
        if told := consequence(one, settings):
            print(f"{near(folder)}: {told}")
        config = {"resume": str(folder)}
        launches.append(Launch(settings, config | _set(options.set), done))
    return launch_all(launches, where_of(options))


def _set(overrides: list[str]) -> dict[str, str]:
    return {"set": shlex.join(overrides)} if overrides else {}
