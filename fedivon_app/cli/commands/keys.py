"""Creates the certificates and keys of a deployment.

DIR/authority signs certificates, DIR/server belongs on the server's host, and DIR/sites/NAME at the
site of that name. Existing files are kept, except that the server's certificate is renewed for new
hosts and in the month before it expires.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.paths import given_path
from fedivon_app.federation.keys import certificate_end, make_keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument(
        "folder",
        type=given_path,
        metavar="DIR",
        help="output folder; do not share it over a network",
    )
    parser.add_argument(
        "--host",
        nargs="+",
        default=[],
        metavar="NAME",
        help="host names and addresses of the server",
    )
    parser.add_argument("--site", nargs="+", default=[], metavar="NAME", help="names of the sites")


def run(options: argparse.Namespace) -> int:
    """Make what is missing, print what was made, and return the exit status."""
    made = make_keys(options.folder, options.host, options.site)
    print("\n".join(str(path) for path in made) if made else "nothing to create: all files exist")
    print(f"the server's certificate is valid until {certificate_end(options.folder):%Y-%m-%d}")
    return 0
