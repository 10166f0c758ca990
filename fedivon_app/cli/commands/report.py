"""Writes a page about each run.

RUN/report.html shows scores, curves, calibration, uncertainty and settings.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.parser import add_runs
from fedivon_app.report.pages import write_report
from fedivon_app.runs.catalogue import runs_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_runs(parser, sweeps=True)


def run(options: argparse.Namespace) -> int:
    """Write the pages, print their paths, and return the exit status."""
    for one in runs_in(options.run):
        print(write_report(one), flush=True)
    return 0
