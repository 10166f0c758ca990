"""Prints the final scores of runs and plots their curves.

CSV and JSON have the scores in full precision; Markdown and LaTeX round them like the terminal.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from fedivon_app.cli.parser import add_runs
from fedivon_app.cli.paths import given_path
from fedivon_app.cli.summaries import own_scores, summary_of, summary_table, table_over_seeds
from fedivon_app.cli.table_formats import FORMS
from fedivon_app.core.errors import SettingsError
from fedivon_app.report.figure_files import format_of
from fedivon_app.report.grouping import grouped
from fedivon_app.report.learning_plot import WIDTHS, By
from fedivon_app.report.pages import plot_learning
from fedivon_app.report.results import RunResults
from fedivon_app.runs.folder import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_runs(parser)
    parser.add_argument(
        "--plot",
        type=given_path,
        metavar="FILE",
        help="plot the learning curves, as .png, .svg or .pdf",
    )
    parser.add_argument(
        "--by",
        choices=get_args(By),
        default="rounds",
        help="plot by rounds, or by the bytes that were sent (default: rounds)",
    )
    parser.add_argument(
        "--width",
        choices=tuple(WIDTHS),
        help="size the plot for a paper: as wide as a column or a page",
    )
    parser.add_argument(
        "--names", nargs="+", metavar="NAME", help="what to call the runs (default: the strategies)"
    )
    parser.add_argument(
        "--over-seeds",
        action="store_true",
        help="mean and standard deviation of runs that differ only in the seed",
    )
    parser.add_argument(
        "--format",
        choices=("text", *FORMS),
        default="text",
        help="how to print the table (default: text)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the scores, draw the curves if asked, and return the exit status."""
    if options.plot:
        format_of(options.plot)  # a wrong suffix is told before anything is read
    elif options.width or options.names or options.by != "rounds":
        raise SettingsError("--width, --names and --by apply to a plot: add --plot FILE")
    print(_table(options.run, options.over_seeds, options.format))
    if options.plot:
        runs = [Run.open(folder) for folder in options.run]
        plot_learning(
            runs,
            path=options.plot,
            names=options.names,
            width=options.width,
            over_seeds=options.over_seeds,
            by=options.by,
        )
    return 0


def _table(folders: Sequence[Path], over_seeds: bool, form: str) -> str:
    summaries = [summary_of(folder) for folder in folders]
    own = own_scores(folders)
    if not over_seeds:
        return summary_table(summaries, own, form)
    groups = grouped([RunResults.read(Run.open(folder)) for folder in folders]).groups
    named = {group.label: [one.summary for one in group.results] for group in groups}
    return table_over_seeds(named, own, form)
