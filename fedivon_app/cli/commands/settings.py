"""Prints the settings that a run would use.

With --explain each has its meaning, its type and allowed values, its default, and the file that set
it; settings that mean nothing for this run are left out, unless you name one.
"""

from __future__ import annotations

import argparse

import yaml

from fedivon_app.cli.parser import add_experiment
from fedivon_app.core.compose import composed
from fedivon_app.methods import settings_of
from fedivon_app.runs.explain import explained


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_experiment(parser)
    parser.add_argument("--strategy", metavar="NAME", help="a method other than the experiment's")
    parser.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="KEY",
        help="say what settings mean: all, a section such as client, or one such as client.ess",
    )


def run(options: argparse.Namespace) -> int:
    """Print the settings, as YAML or explained, and return the exit status."""
    made = composed(settings_of, options.experiment, options.strategy, options.set)
    if options.explain is not None:
        print(explained(made, options.explain))
    else:
        print(yaml.safe_dump(made.settings.model_dump(mode="json"), sort_keys=False), end="")
    return 0
