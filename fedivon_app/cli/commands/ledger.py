"""Shows what has been spent of the privacy of a site's data.

A line for every release, or with --sum one for each data set: its epsilon over all runs.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.node_words import add_node_config
from fedivon_app.cli.parser import share
from fedivon_app.cli.paths import given_path
from fedivon_app.cli.tables import layout
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.ledger import Account, Ledger, Release, Size
from fedivon_app.core.site_policy import site_ledger

SHORT = 12  # characters of a digest that are shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument(
        "--folder", type=given_path, metavar="DIR", help="the ledger's folder (default: the site's)"
    )
    add_node_config(parser)
    parser.add_argument(
        "--delta", type=share, help="at which epsilon is counted (default: the site's)"
    )
    parser.add_argument("--sum", action="store_true", help="one line for each data set")


def run(options: argparse.Namespace) -> int:
    """Print the ledger, and return the exit status."""
    ledger = site_ledger(options.node_config)
    if options.folder:
        if not options.folder.is_dir():
            raise SettingsError(f"{options.folder} is not a folder, and so no ledger")
        ledger = Ledger(options.folder, ledger.limit)
    accounts = ledger.accounts()
    if not accounts:
        print(f"nothing was released: {ledger.folder} has no ledger yet")
        return 0
    delta = options.delta or ledger.limit.delta
    if options.sum:
        rows = [["data", "releases", "runs", "epsilon", "limit"]]
        rows += [_summed(data, account, delta) for data, account in accounts.items()]
        print(layout(rows, words=1))
    else:
        rows = [["data", "run", "round", "released", "noise", "rate", "steps", "epsilon so far"]]
        for data, account in accounts.items():
            rows += _listed(data, account, delta)
        print(layout(rows, words=2))
    print(f"epsilon is at delta {delta:g}; {ledger.folder}")
    return 0


def _summed(data: str, account: Account, delta: float) -> list[str]:
    releases = account.releases()
    runs = {release.run for release in releases}
    limit = account.limit.epsilon
    return [
        data[:SHORT],
        str(len(releases)),
        str(len(runs)),
        f"{account.spent(delta):.3f}",
        "none" if limit is None else f"{limit:g}",
    ]


def _listed(data: str, account: Account, delta: float) -> list[list[str]]:
    releases = account.releases()
    return [
        [data[:SHORT], *_cells(release), f"{account.spent_on(releases[: k + 1], delta):.3f}"]
        for k, release in enumerate(releases)
    ]


def _cells(release: Release) -> list[str]:
    if isinstance(release, Size):
        return [release.run, "", "noisy size", "", "", ""]
    return [
        release.run,
        str(release.round),
        release.method,
        f"{release.noise:.3f}",
        f"{release.rate:.4f}",
        str(release.steps),
    ]
