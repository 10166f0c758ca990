"""Lists runs, their progress and their latest scores.

Runs inside sweeps are listed too, the newest last. A run that has not ended counts as running if it
wrote something in the last minute (or in three times its longest round), otherwise as unfinished.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from fedivon_app.cli.paths import given_path, near
from fedivon_app.cli.tables import MISSING, ScoreColumns, ScoredRow, scores_table
from fedivon_app.core.scores import SCORES
from fedivon_app.core.text import duration
from fedivon_app.runs.catalogue import Found, find, last_scores

LISTED = ("accuracy", "nll", "ece")  # scores for which a line has room


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument(
        "folder",
        nargs="*",
        type=given_path,
        metavar="DIR",
        help="where run folders are (default: ./runs)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the table of runs, and return the exit status."""
    usual = given_path("runs")
    folders = options.folder or [usual]
    there = find(options.folder or [folder for folder in folders if folder.is_dir()])
    print(list_table(there) if there else f"no runs in {', '.join(map(near, folders))}")
    return 0


def list_table(there: Iterable[Found]) -> str:
    """Return a table with a line for every run, and below it why runs failed or cannot be read."""
    rows = []
    reasons = []
    for found in there:
        scores = last_scores(found.scores)
        words = [near(found.folder), found.strategy or MISSING, found.status]
        rounds = f"{found.rounds}/{found.planned}" if found.readable else MISSING
        time = duration(found.seconds) if found.readable else MISSING
        rows.append(ScoredRow([*words, rounds], [scores] if scores else [], rest=[time]))
        if found.detail:
            reasons.append(f"{near(found.folder)} {found.status}: {found.detail.splitlines()[0]}")
    table = scores_table(
        words=("folder", "strategy", "status", "rounds"),
        rows=rows,
        left=3,
        rest=("time",),
        columns=ScoreColumns([SCORES[name] for name in LISTED]),
    )
    return "\n".join([table, *([""] if reasons else []), *reasons])
