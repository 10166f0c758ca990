"""Checks whether a site can take part, and says what to fix.

Its exit status is 1 if something is to be fixed before the site can take part.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.paths import given_path
from fedivon_app.federation.doctor import examine

INDENT = 8  # of what stands behind a verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument("--data", type=given_path, metavar="FILE", help="the site's .npz file")
    parser.add_argument(
        "--keys",
        type=given_path,
        metavar="DIR",
        help="the site's folder with node.key, node.pub and ca.crt",
    )
    parser.add_argument("--superlink", metavar="HOST:PORT", help="what the SuperNode dials")
    parser.add_argument(
        "--state",
        type=given_path,
        metavar="DIR",
        help="where it keeps state (default: $FEDIVON_STATE)",
    )


def run(options: argparse.Namespace) -> int:
    """Print what each check finds, and return the exit status: 1 if one of them failed."""
    verdicts = set()
    for finding in examine(
        data=options.data, keys=options.keys, superlink=options.superlink, state=options.state
    ):
        verdicts.add(finding.verdict)
        word = finding.verdict if finding.verdict == "ok" else finding.verdict.upper()
        print(f"{word:<{INDENT}} {finding.about}: {finding.found}", flush=True)
        if finding.remedy:
            print(f"{'':<{INDENT}} to do: {finding.remedy}")
    if not verdicts - {"ok"}:
        print("nothing to fix")
    return 1 if "failure" in verdicts else 0
