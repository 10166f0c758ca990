"""Lists runs, their progress and their latest scores.

Runs inside sweeps are listed too, the newest last. A run that has not ended counts as running if it
wrote something in the last minute (or in three times its longest round), otherwise as unfinished.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedivon_app.cli.paths import given_path, near
from fedivon_app.cli.tables import MISSING, ScoreColumns, ScoredRow, scores_table
from fedivon_app.core.dotted import flat as dotted
from fedivon_app.core.scores import NUMBER_SCORES, SCORES, Score
from fedivon_app.core.text import duration
from fedivon_app.runs.catalogue import Found, find, last_scores

IGNORED = ("run.", "experiment", "strategy")  # settings that make no difference
MOST = 4  # differences that a line has room for
DIFFERS = "what differs"
RMSE = NUMBER_SCORES["rmse"]
LISTED = (SCORES["accuracy"], RMSE, SCORES["nll"], SCORES["ece"])  # for which a line has room


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


def differences(there: Sequence[Found]) -> dict[Path, str]:
    """Return by folder in which settings runs of one experiment and method differ.

    Where a run was made, and how it is watched, is no difference.
    """
    alike: dict[tuple[str, str], list[Found]] = {}
    for found in there:
        alike.setdefault((found.experiment, found.strategy), []).append(found)
    told = {found.folder: "" for found in there}
    for group in alike.values():
        values = {found.folder: dotted(found.settings) for found in group if found.readable}
        names = dict.fromkeys(name for one in values.values() for name in one)
        varied = [
            name
            for name in names
            if not name.startswith(IGNORED)
            and len({str(one[name]) for one in values.values() if name in one}) > 1
        ]
        for folder, one in values.items():
            words = [f"{name}={one[name]}" for name in varied if name in one]
            more = [f"and {len(words) - MOST} more"] if len(words) > MOST else []
            told[folder] = " ".join(words[:MOST] + more)
    return told


def _named(found: Found, section: str, key: str) -> str:
    """The name of a run's data or model; of a model of the user's own, that of its builder."""
    values = found.settings.get(section) or {}
    own = values.get("factory") if isinstance(values, dict) else None
    name = own or (values.get(key) if isinstance(values, dict) else None)
    return str(name).rpartition(":")[2] if name else MISSING


def list_table(there: Iterable[Found]) -> str:
    """Return a table with a line for every run, and below it why runs failed or cannot be read."""
    rows = []
    reasons = []
    there = list(there)
    differs = differences(there)
    widest = max(map(len, (DIFFERS, *differs.values())))
    for found in there:
        scores = last_scores(found.scores)
        words = [near(found.folder), found.strategy or MISSING]
        words += [_named(found, "data", "source"), _named(found, "model", "name"), found.status]
        rounds = f"{found.rounds}/{found.planned}" if found.readable else MISSING
        time = duration(found.seconds) if found.readable else MISSING
        rows.append(
            ScoredRow(
                [*words, rounds],
                [scores] if scores else [],
                rest=[time, differs[found.folder].ljust(widest)],
            )
        )
        if found.detail:
            reasons.append(f"{near(found.folder)} {found.status}: {found.detail.splitlines()[0]}")
    table = scores_table(
        words=("folder", "strategy", "data", "model", "status", "rounds"),
        rows=rows,
        left=5,
        rest=("time", DIFFERS.ljust(widest)),
        columns=ScoreColumns(_listed(there)),
    )
    return "\n".join([table, *([""] if reasons else []), *reasons])


def _listed(there: Iterable[Found]) -> list[Score]:
    """The columns of scores; errors of numbers have one where a run predicts numbers."""
    numbers = any(RMSE.name in (last_scores(found.scores) or {}) for found in there)
    return [score for score in LISTED if numbers or score is not RMSE]
