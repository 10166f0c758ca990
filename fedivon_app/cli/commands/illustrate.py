"""Redraws Figures 3a, 3b and 4 of the BayesADMM paper.

They are computed on small problems, without a federation, in a few minutes.
"""

from __future__ import annotations

import argparse
from functools import partial

from fedivon_app.cli.parser import add_folder
from fedivon_app.figures.bayes_admm import illustrate
from fedivon_app.runs.check import check_place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_folder(parser, "--out", "figures")
    parser.add_argument("--source", default="mnist", help="images in ten classes (default: mnist)")


def run(options: argparse.Namespace) -> int:
    """Draw the figures, print their paths, and return the exit status."""
    check_place(options.out)
    for path in illustrate(options.out, options.source, partial(print, flush=True)):
        print(path)
    return 0
