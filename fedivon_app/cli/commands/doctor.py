"""Checks whether a site can take part, and says what to fix.

The exit status is 1 if something must be fixed before the site can take part.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.node_words import add_node_config
from fedivon_app.cli.parser import add_overrides
from fedivon_app.cli.paths import given_path
from fedivon_app.core.errors import SettingsError
from fedivon_app.federation.doctor import Wanted, examine

INDENT = 8  # of what stands behind a verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument(
        "experiment",
        nargs="?",
        metavar="EXPERIMENT",
        help="a name in conf/experiment that the data should fit",
    )
    add_overrides(parser)
    parser.add_argument("--data", type=given_path, metavar="FILE", help="the site's file")
    parser.add_argument(
        "--keys",
        type=given_path,
        metavar="DIR",
        help="the site's folder with node.key, node.pub and ca.crt",
    )
    parser.add_argument(
        "--superlink", metavar="HOST:PORT", help="the address that the SuperNode connects to"
    )
    parser.add_argument(
        "--state",
        type=given_path,
        metavar="DIR",
        help="where the node keeps its state (default: $FEDIVON_STATE)",
    )
    add_node_config(parser)


def run(options: argparse.Namespace) -> int:
    """Print what each check finds, and return the exit status: 1 if one of them failed."""
    if options.experiment and not options.data:
        raise SettingsError("add --data FILE: the data that should fit the experiment")
    verdicts = set()
    for finding in examine(
        data=options.data,
        keys=options.keys,
        superlink=options.superlink,
        state=options.state,
        wanted=_wanted(options),
        node=options.node_config,
    ):
        verdicts.add(finding.verdict)
        word = finding.verdict if finding.verdict == "ok" else finding.verdict.upper()
        print(f"{word:<{INDENT}} {finding.about}: {finding.found}", flush=True)
        if finding.remedy:
            print(f"{'':<{INDENT}} to do: {finding.remedy}")
    if not verdicts - {"ok"}:
        print("nothing to fix")
    return 1 if "failure" in verdicts else 0


def _wanted(options: argparse.Namespace) -> Wanted | None:
    """What the experiment wants of a site's data, if one is named."""
    if not options.experiment:
        return None
    from fedivon_app.core.compose import compose  # who names no experiment need not wait for these
    from fedivon_app.methods import settings_of
    from fedivon_app.server.setup import server_data

    settings = compose(settings_of, options.experiment, overrides=options.set)
    known = server_data(settings)
    return Wanted(
        experiment=options.experiment,
        shape=known.shape,
        num_classes=known.num_classes,
        settings=settings,
    )
