"""Shows a run under way on a page that updates itself.

The page is served to this machine alone, at 127.0.0.1, from what the run writes into its folder. It
shows who is there, whose replies were dropped and why, the bytes sent, the time left, and the
report as far as it goes. Without a run it follows the newest one in --runs. Ctrl-C ends the page
and not the run.
"""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from fedivon_app.cli.parser import add_runs_folder, number_type
from fedivon_app.cli.paths import given_path, near
from fedivon_app.report.live_server import HOST, LivePage, live_server
from fedivon_app.runs.catalogue import newest
from fedivon_app.runs.records import read_settings

port = number_type(int, 0, 65535, "a port, from 0 to 65535")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument(
        "run",
        nargs="?",
        type=given_path,
        metavar="RUN",
        help="a run's folder (default: the newest run in --runs)",
    )
    add_runs_folder(parser)
    parser.add_argument(
        "--port", type=port, default=0, metavar="N", help="port of the page (default: a free one)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(options: argparse.Namespace) -> int:
    """Serve the page until the person has seen enough, and return the exit status."""
    if options.run is not None:
        read_settings(options.run)  # what is no run is told at once

    def find() -> Path | None:
        folder: Path | None = options.run or newest(options.runs)
        return folder

    page = LivePage(find, near(options.runs))
    with live_server(page, options.port) as server:
        address = f"http://{HOST}:{server.server_address[1]}/"
        what = near(options.run) if options.run else f"the newest run in {near(options.runs)}"
        print(f"{what} is shown at {address} (Ctrl-C ends the page, not the run)", flush=True)
        if options.open:
            webbrowser.open(address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print()
    return 0
