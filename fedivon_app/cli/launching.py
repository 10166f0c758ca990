"""Starting runs one after another, and telling how they went: for `fedivon run` and `resume`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing

from fedivon_app.cli.summaries import own_scores, summary_of, summary_table
from fedivon_app.core.errors import SettingsError
from fedivon_app.federation.run_queue import Launch, Where, launch, tell_failure
from fedivon_app.plurals import counted
from fedivon_app.runs.records import SUMMARY


def where_of(options: argparse.Namespace) -> Where:
    """Return where runs are to take place, as the command line says."""
    if options.ray and (options.superlink or options.engine != "flower"):
        other = "--superlink" if options.superlink else "the inline engine"
        raise SettingsError(
            f"--ray spreads the simulated clients of Flower's engine over a cluster, and {other} "
            "has none: leave one of them out, or say --engine flower"
        )
    return Where(
        cpus=options.cpus,
        verbose=options.verbose,
        superlink=options.superlink,
        ca=options.ca,
        engine=options.engine,
        ray=options.ray,
    )


def launch_all(runs: Sequence[Launch], where: Where) -> int:
    """Make these runs, print their scores and folders, and return the exit status."""
    folders = []
    failed = False
    with closing(launch(runs, where)) as outcomes:
        for one in runs:
            what = f"starting {one.settings.strategy} on {_nodes(one, where)}"
            print(f"{what}, waiting for {where.waits_for} ...", flush=True)
            outcome = next(outcomes)
            if outcome.end.failed:
                tell_failure(one.settings.strategy, outcome.end, where.verbose)
                failed = True
            if outcome.folder and (outcome.folder / SUMMARY).is_file():
                folders.append(outcome.folder)
    summaries = [summary_of(folder) for folder in folders]
    scored = [one for one in summaries if one["final"] or one.get("personal")]
    if scored:
        print(f"\n{summary_table(scored, own_scores(folders))}")
    if folders:
        print("\nrun folders:\n" + "\n".join(f"  {folder}" for folder in folders))
    return 1 if failed else 0


def _nodes(one: Launch, where: Where) -> str:
    if where.superlink:
        return f"the nodes of {where.superlink}"
    return counted(one.settings.data.clients or 0, "simulated client")
