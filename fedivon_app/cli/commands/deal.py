"""Splits an experiment's data into one file per site.

The files DIR/NAME/site.npz, split by the experiment's partition rule, are for trying out a
deployment in which every node has its own file. A table is split by data.client_column, into
DIR/NAME/site.csv. Existing files are kept.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.parser import add_experiment, add_folder
from fedivon_app.core.compose import compose
from fedivon_app.federation.site_files import write_site_files
from fedivon_app.methods import settings_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_experiment(parser)
    parser.add_argument(
        "--site", nargs="+", required=True, metavar="NAME", help="names of the sites"
    )
    add_folder(parser, "--to", "data")


def run(options: argparse.Namespace) -> int:
    """Write the files, print what is in each, and return the exit status."""
    overrides = [*options.set, f"data.clients={len(options.site)}", "clients_per_round=null"]
    settings = compose(settings_of, options.experiment, overrides=overrides)
    for file in write_site_files(settings, options.to, options.site):
        print(f"{file.path}: {file.text}", flush=True)
    return 0
