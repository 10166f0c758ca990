"""What `fedivon` can be told: the parser of all commands, and what several of them take."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import fedivon_app
from fedivon_app.cli.commands import COMMANDS, PASSED_ON, command_in, command_of
from fedivon_app.cli.paths import given_path
from fedivon_app.runs.version import commit, version_text

Number = TypeVar("Number", int, float)


class CommandHelp(argparse.HelpFormatter):
    """Help that is wide enough for every command to have one line."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)
        self._action_max_length = 15  # argparse does not count the indent of commands


class ShowVersion(argparse.Action):
    """Prints the version, which is looked up only here, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *given: object) -> None:
        """Print it."""
        print(version_text(fedivon_app.__version__, commit()))
        parser.exit()


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return what these words of a command line ask for; `command` is the name of the command.

    As argparse does, this prints help or a complaint and exits where the words are not a command
    that can be carried out.
    """
    command = command_in(words)
    if command in PASSED_ON and words[0] == command and not {"-h", "--help"} & {*words}:
        return argparse.Namespace(command=command, words=list(words[1:]))
    options = parser_of(command).parse_args(words)
    own = getattr(options, "set", [])
    if getattr(options, "set_file", None) is not None:
        options.set = [*_words_of_file(options), *own]
    if {"set", "runs"} <= vars(options).keys():
        options.runs = _place_of_runs(options.runs, own, options.set)
    return options


def _place_of_runs(given: Path | None, own: Sequence[str], words: Sequence[str]) -> Path:
    from fedivon_app.runs.place import place_of_runs  # it reads YAML

    return place_of_runs(given, own, below=words)


def _words_of_file(options: argparse.Namespace) -> list[str]:
    """The overrides of a file, over which those of the command line win."""
    from fedivon_app.tuning.set_file import words_of_file  # it knows the methods, and takes time

    named = getattr(options, "strategy", None) or []
    grid = getattr(options, "grid", [])
    return words_of_file(
        options.set_file,
        experiment=options.experiment,
        strategies=[named] if isinstance(named, str) else named,
        given=[*options.set, *grid],
    )


def parser_of(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of `fedivon`, in which this command, if there is such, has its arguments.

    The other commands have their lines of help alone, for which their modules are not imported.
    """
    parser = argparse.ArgumentParser(
        prog="fedivon",
        description="Federated learning with Gaussian posteriors.",
        formatter_class=CommandHelp,
    )
    parser.add_argument("--version", action=ShowVersion, help="print version and commit, and exit")
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    for name, line in COMMANDS.items():
        own = commands.add_parser(name, help=line, formatter_class=CommandHelp)
        if name == command:
            module = command_of(name)
            own.description = module.__doc__
            module.add_arguments(own)
    return parser


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """Add an experiment and the settings that are to differ from it."""
    parser.add_argument("experiment", metavar="EXPERIMENT", help="a name in conf/experiment")
    add_overrides(parser)
    parser.add_argument(
        "--set-file", type=given_path, metavar="FILE", help="overrides from a YAML file; --set wins"
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add settings that are to differ from an experiment's."""
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="overrides by dotted name"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add one run."""
    parser.add_argument("run", type=given_path, metavar="RUN", help="a run's folder")


def add_runs(parser: argparse.ArgumentParser, *, sweeps: bool = False) -> None:
    """Add one run or more; with `sweeps` the folder of a sweep stands for all runs inside."""
    text = "a run's folder, or a sweep's folder for all runs in it" if sweeps else "a run's folder"
    parser.add_argument("run", nargs="+", type=given_path, metavar="RUN", help=text)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Add the choice of a run's checkpoint."""
    parser.add_argument(
        "--checkpoint",
        choices=("last", "best"),
        default="last",
        help="the last one, or the one with the best held-out score",
    )


def add_samples(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the number of weight samples; `default` says in words what it is where none is given."""
    text = f"weight samples (default: {default})"
    parser.add_argument("--samples", type=whole_number, metavar="N", help=text)


def add_folder(
    parser: argparse.ArgumentParser, name: str, default: str, what: str = "output folder"
) -> None:
    """Add a folder with a default in the current one."""
    text = f"{what} (default: ./{default})"
    parser.add_argument(name, type=given_path, default=default, metavar="DIR", help=text)


def add_simulation(parser: argparse.ArgumentParser, engine: str) -> None:
    """Add how runs are simulated; `engine` is the default."""
    parser.add_argument("--cpus", type=rate, default=1.0, help="CPUs for each simulated client")
    parser.add_argument(
        "--engine",
        choices=("flower", "inline"),
        default=engine,
        help="simulate with Flower's engine, or with faster worker processes of our own; "
        f"the numbers are the same (default: {engine})",
    )


def add_launch(parser: argparse.ArgumentParser, engine: str = "flower") -> None:
    """Add where runs take place, and how much is shown of it."""
    add_simulation(parser, engine)
    parser.add_argument(
        "--ray",
        metavar="HOST:PORT",
        help="spread the simulated clients over the Ray cluster with this address",
    )
    parser.add_argument(
        "--gpus",
        type=share,
        default=0.0,
        help="GPUs for each client that Flower's engine simulates: with 0.25 four share one "
        "(default: none)",
    )
    add_connection(
        parser, "run on the nodes of this SuperLink, not on simulated ones ($FEDIVON_SUPERLINK)"
    )
    parser.add_argument("--verbose", action="store_true", help="also show Flower's log")
    parser.add_argument(
        "--signature",
        type=given_path,
        metavar="FILE",
        help="what `fedivon sign` wrote, for sites that run only signed code",
    )


def add_connection(parser: argparse.ArgumentParser, superlink_help: str) -> None:
    """Add the address of a SuperLink and its authority, which the environment may give as well."""
    parser.add_argument(
        "--superlink",
        default=os.environ.get("FEDIVON_SUPERLINK"),
        metavar="HOST:PORT",
        help=superlink_help,
    )
    parser.add_argument(
        "--ca",
        type=given_path,
        default=os.environ.get("FEDIVON_CA") or None,
        metavar="FILE",
        help="the ca.crt of its authority; without it there is no TLS ($FEDIVON_CA)",
    )


def add_start(parser: argparse.ArgumentParser) -> None:
    """Add the methods of runs that are to be started, and the place of their folders."""
    parser.add_argument(
        "--strategy", nargs="+", metavar="NAME", help="methods to use instead of the experiment's"
    )
    parser.add_argument(
        "--runs",
        type=given_path,
        metavar="DIR",
        help="where run folders are made, the same as --set run.folder=DIR (default: ./runs)",
    )


def add_runs_folder(parser: argparse.ArgumentParser) -> None:
    """Add the place of the folders of runs that are to be started."""
    add_folder(parser, "--runs", "runs", "where run folders are made")


def number_type(
    kind: type[Number], least: float, most: float, what: str
) -> Callable[[str], Number]:
    """Return a type for argparse that takes numbers from `least` to `most`.

    Of anything else it says that it is not `what`.
    """

    def read(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return read


whole_number = number_type(int, 0, math.inf, "a whole number of at least 0")
positive_number = number_type(int, 1, math.inf, "a whole number of at least 1")
share = number_type(float, 0, 1, "a number from 0 to 1")
open_share = number_type(float, 1e-9, 1 - 1e-9, "a number between 0 and 1")
rate = number_type(float, 1e-12, math.inf, "a number above 0")
