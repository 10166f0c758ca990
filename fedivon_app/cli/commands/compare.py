"""Writes a page that compares runs.

Runs that differ only in the seed are grouped.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fedivon_app.cli.parser import add_runs
from fedivon_app.cli.paths import given_path, near
from fedivon_app.report.pages import write_comparison
from fedivon_app.runs.catalogue import runs_in
from fedivon_app.runs.records import SETTINGS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_runs(parser, sweeps=True)
    parser.add_argument(
        "--out",
        type=given_path,
        metavar="DIR",
        help="output folder (default: the sweep's folder, or ./comparison)",
    )
    parser.add_argument(
        "--names", nargs="+", metavar="NAME", help="what to call the runs (default: what differs)"
    )


def run(options: argparse.Namespace) -> int:
    """Write the page, print its path, and return the exit status."""
    runs = runs_in(options.run)
    folder = options.out or _usual_folder(options.run)
    print(near(write_comparison(runs, folder, options.names)))
    return 0


def _usual_folder(given: Sequence[Path]) -> Path:
    one_sweep = len(given) == 1 and not (given[0] / SETTINGS).is_file()
    return given[0] if one_sweep else given_path("comparison")
