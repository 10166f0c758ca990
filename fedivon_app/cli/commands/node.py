"""Runs the node of a site: Flower's SuperNode, made faster.

It takes the same options as `flower-supernode`, whose --help lists them. ClientApps are forked from
a process that has imported what they need. FEDIVON_NODE=worker keeps one process for all messages
of a run's code, and FEDIVON_NODE=stock runs Flower's own SuperNode.
"""

from __future__ import annotations

import argparse

from fedivon_app.node.supernode import main


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="see above")


def run(options: argparse.Namespace) -> int:
    """Run the node until it is told to end, and return the exit status."""
    main(options.words)
    return 0
