"""The commands of `fedivon`: a module of the same name for each, and its line of help.

A command is added by its module and a line in COMMANDS. The module's docstring is the command's
description, of which the first line stands in COMMANDS too, so that `fedivon --help` imports no
module; its `add_arguments(parser)` says what the command takes, and its `run(options)` does the
work and returns the exit status. What the work needs is imported at the top of the module, for only
the module of the command that was given is ever imported.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

COMMANDS = {
    "run": "Runs an experiment, with one or several methods and seeds.",
    "resume": "Continues stopped runs from their last checkpoints.",
    "sweep": "Runs every combination of values and compares the results.",
    "tune": "Searches for good settings, with equal budgets per method.",
    "reproduce": "Reproduces the papers' tables and compares the numbers.",
    "list": "Lists runs, their progress and their latest scores.",
    "watch": "Shows a run under way on a page that updates itself.",
    "show": "Prints the final scores of runs and plots their curves.",
    "report": "Writes a page about each run.",
    "compare": "Writes a page that compares runs.",
    "uncertainty": "Measures how certain a model is, on known and unknown data.",
    "predict": "Predicts for images and tables, and says how sure it is.",
    "export": "Writes a model as ONNX, torch or safetensors.",
    "personalise": "Fits a personal model to your own data.",
    "clients": "Scores a run's personal models again, client by client.",
    "illustrate": "Redraws Figures 3a, 3b and 4 of the BayesADMM paper.",
    "keys": "Creates the certificates and keys of a deployment.",
    "sign": "Signs the code of a run, for sites that check what they run.",
    "node": "Runs the node of a site: Flower's SuperNode, made faster.",
    "sites": "Lists, admits and removes the sites of a deployment.",
    "data": "Shows how an experiment's data are divided among clients.",
    "deal": "Splits an experiment's data into one file per site.",
    "ledger": "Shows what has been spent of the privacy of a site's data.",
    "doctor": "Checks whether a site can take part, and says what to fix.",
    "settings": "Prints the settings that a run would use.",
}

INLINE = {
    "sweep",
    "reproduce",
    "tune",
}  # commands that simulate inline unless they are told otherwise
PASSED_ON = {"node"}  # commands whose words are those of a program of Flower's


class Command(Protocol):
    """What a command's module has, beside its docstring."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add what the command takes to its parser."""

    def run(self, options: argparse.Namespace) -> int:
        """Do what the command says, and return the exit status."""


def command_of(name: str) -> Command:
    """Import the module of a command and return it."""
    return cast(Command, import_module(f"{__name__}.{name}"))


def command_in(words: Sequence[str]) -> str | None:
    """Return the name that stands in the place of the command, be there such a command or not."""
    return next((word for word in words if not word.startswith("-")), None)
