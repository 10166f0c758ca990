"""Lists, admits and removes the sites of a deployment.

Anyone with an admitted key takes part in runs. Admitting a site twice does no harm; if it has a new
key, the old one is shut out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from fedivon_app.cli.parser import add_connection, add_folder
from fedivon_app.cli.tables import layout
from fedivon_app.core.errors import SettingsError
from fedivon_app.federation.sites import GONE, Site, admit, remove, sites_of
from fedivon_app.federation.superlink import SuperLink


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_connection(
        parser, "the SuperLink's own port, not the proxy's (default: $FEDIVON_SUPERLINK)"
    )
    add_folder(parser, "--keys", "keys", "the folder made by `fedivon keys`")
    parser.add_argument(
        "--admit",
        nargs="+",
        default=[],
        metavar="NAME",
        help="sites to admit, by DIR/sites/NAME/node.pub",
    )
    parser.add_argument("--remove", nargs="+", default=[], metavar="NAME", help="sites to shut out")


def run(options: argparse.Namespace) -> int:
    """Admit and remove sites, or list them if there is neither to do; return the exit status."""
    if not options.superlink:
        raise SettingsError(
            "say which SuperLink: --superlink HOST:PORT, or FEDIVON_SUPERLINK in the environment"
        )
    with SuperLink(options.superlink, options.ca) as link:
        for line in admit(link, options.keys, options.admit):
            print(line, flush=True)
        for line in remove(link, options.remove):
            print(line, flush=True)
        if not (options.admit or options.remove):
            print(sites_table(site for site in sites_of(link) if site.status != GONE))
    return 0


def sites_table(sites: Iterable[Site]) -> str:
    """Return a table with a line for every site: its name, its node's number, and since when it is
    there or not."""
    rows = [["site", "node", "status", "since"]]
    for site in sites:
        since = site.since[:19].replace("T", " ")
        rows.append([site.name, str(site.node), site.status, since])
    if len(rows) == 1:
        return "no sites: `fedivon sites --admit NAME` admits one"
    return layout(rows, words=4)
