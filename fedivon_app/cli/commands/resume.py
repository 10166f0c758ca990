"""Goes on with stopped runs from their last checkpoints."""

from __future__ import annotations

import argparse

from fedivon_app.cli.launching import launch_all, where_of
from fedivon_app.cli.parser import add_launch, add_runs
from fedivon_app.federation.run_queue import Launch
from fedivon_app.runs.folder import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_runs(parser)
    add_launch(parser)


def run(options: argparse.Namespace) -> int:
    """Go on with the runs, and return the exit status."""
    launches = []
    for folder in options.run:
        settings = Run.open(folder).settings
        launches.append(Launch(settings=settings, config={"resume": str(folder)}))
    return launch_all(launches, where_of(options))
