"""Makes certificates and keys for a deployment.

DIR/authority signs, DIR/server goes to the server's host, DIR/sites/NAME to the site of that name.
What is there is kept; the server's certificate is renewed for new hosts, and in the month before it
ends.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.paths import given_path
from fedivon_app.federation.keys import certificate_end, make_keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument(
        "folder", type=given_path, metavar="DIR", help="where; keep it off the network"
    )
    parser.add_argument(
        "--host", nargs="+", default=[], metavar="NAME", help="names and addresses of the server"
    )
    parser.add_argument("--site", nargs="+", default=[], metavar="NAME", help="who takes part")


def run(options: argparse.Namespace) -> int:
    """Make what is missing, print what was made, and return the exit status."""
    made = make_keys(options.folder, options.host, options.site)
    print("\n".join(str(path) for path in made) if made else "everything was there")
    print(f"the server's certificate is good until {certificate_end(options.folder):%Y-%m-%d}")
    return 0
