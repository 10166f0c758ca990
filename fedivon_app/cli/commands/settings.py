"""Prints the settings that a run would use."""

from __future__ import annotations

import argparse

import yaml

from fedivon_app.cli.parser import add_experiment
from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_experiment(parser)
    parser.add_argument("--strategy", metavar="NAME", help="a method other than the experiment's")


def run(options: argparse.Namespace) -> int:
    """Print the settings as YAML, and return the exit status."""
    composed = compose(settings_of, options.experiment, options.strategy, options.set)
    print(yaml.safe_dump(composed.model_dump(mode="json"), sort_keys=False), end="")
    return 0
