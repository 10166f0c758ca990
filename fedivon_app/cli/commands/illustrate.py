"""Redraws Figures 3a, 3b and 4 of the BayesADMM paper.

They are computed on small problems, without a federation, in a few minutes.
"""

from __future__ import annotations

import argparse
import time

from fedivon_app.cli.parser import add_folder
from fedivon_app.core.text import duration
from fedivon_app.figures.bayes_admm import illustrate
from fedivon_app.progress import Line
from fedivon_app.runs.check import check_place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_folder(parser, "--out", "figures")
    parser.add_argument("--source", default="mnist", help="images in ten classes (default: mnist)")


def run(options: argparse.Namespace) -> int:
    """Draw the figures, print their paths, and return the exit status."""
    check_place(options.out)
    began = time.monotonic()
    with Line() as line:
        line.say("three figures, a line for each method in them, in a few minutes")
        line.change("figure 3a", "its first method ...")

        def show(text: str) -> None:
            line.say(text)
            spent = duration(time.monotonic() - began)
            line.change(f"figure {text.partition(',')[0]}", f"{spent} so far")

        paths = illustrate(options.out, options.source, show)
    for path in paths:
        print(path)
    return 0
