"""Prints the final scores of runs and plots their curves.

CSV and JSON have the scores in full precision; Markdown and LaTeX round them like the terminal.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.parser import add_runs
from fedivon_app.cli.paths import given_path
from fedivon_app.cli.summaries import own_scores, summary_of, summary_table
from fedivon_app.cli.table_formats import FORMS
from fedivon_app.core.errors import SettingsError
from fedivon_app.report.figure_files import format_of
from fedivon_app.report.learning_plot import WIDTHS
from fedivon_app.report.pages import plot_learning
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
        "--width",
        choices=tuple(WIDTHS),
        help="size the plot for a paper: as wide as a column or a page",
    )
    parser.add_argument(
        "--names", nargs="+", metavar="NAME", help="what to call the runs (default: the strategies)"
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
    elif options.width or options.names:
        raise SettingsError("--width and --names apply to a plot: add --plot FILE")
    summaries = [summary_of(folder) for folder in options.run]
    print(summary_table(summaries, own_scores(options.run), options.format))
    if options.plot:
        runs = [Run.open(folder) for folder in options.run]
        plot_learning(runs, options.plot, options.names, options.width)
    return 0
