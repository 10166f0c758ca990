"""Prints the final scores of runs, and draws their curves."""

from __future__ import annotations

import argparse

from fedivon_app.cli.parser import add_runs, given_path
from fedivon_app.cli.summaries import own_scores, summary_of, summary_table
from fedivon_app.report.pages import plot_learning
from fedivon_app.runs.folder import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_runs(parser)
    parser.add_argument(
        "--plot", type=given_path, metavar="FILE", help="where to draw the learning curves"
    )
    parser.add_argument(
        "--names", nargs="+", metavar="NAME", help="what to call the runs (default: the strategies)"
    )


def run(options: argparse.Namespace) -> int:
    """Print the scores, draw the curves if asked, and return the exit status."""
    folders = options.run
    print(summary_table([summary_of(folder) for folder in folders], own_scores(folders)))
    if options.plot:
        plot_learning([Run.open(folder) for folder in folders], options.plot, options.names)
    return 0
