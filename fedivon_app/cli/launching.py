"""Starting runs one after another, and telling how they went: for `fedivon run` and `resume`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from fedivon_app.cli.summaries import own_scores, summary_of, summary_table
from fedivon_app.cli.sureness import answerable, sure_of_the_unknown
from fedivon_app.core.errors import SettingsError
from fedivon_app.federation.run_queue import Launch, Where, launch, tell_failure
from fedivon_app.plurals import counted
from fedivon_app.progress import Line, RunLines
from fedivon_app.runs.cost import prospect
from fedivon_app.runs.records import SUMMARY
from fedivon_app.runs.winner import closing_lines


def where_of(options: argparse.Namespace) -> Where:
    """Return where runs are to take place, as the command line says."""
    if options.ray and (options.superlink or options.engine != "flower"):
        other = "--superlink" if options.superlink else "the inline engine"
        raise SettingsError(
            f"--ray spreads the simulated clients of Flower's engine over a cluster, and {other} "
            "has none: leave one of them out, or say --engine flower"
        )
    if options.gpus and (options.engine == "inline" or options.superlink):
        raise SettingsError(
            "--gpus is for Flower's engine: sites and the clients of the inline engine use the "
            "device that client.device says"
        )
    if options.gpus and not options.ray and not _finds_cuda():
        raise SettingsError(f"--gpus is {options.gpus:g}, but torch finds no CUDA here")
    if options.ca and not options.superlink and not os.environ.get("FEDIVON_CA"):
        raise SettingsError("--ca is for talking to a SuperLink: add --superlink HOST:PORT")
    return Where(
        cpus=options.cpus,
        verbose=options.verbose,
        superlink=options.superlink,
        ca=options.ca,
        engine=options.engine,
        ray=options.ray,
        gpus=options.gpus,
        signature=_signature(options.signature),
    )


def _signature(path: Path | None) -> str:
    """Return the signature that goes with a run, or nothing."""
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"the signature {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise SettingsError(f"{path} is not a signature, as `fedivon sign` writes it") from None


def _finds_cuda() -> bool:
    import torch  # late, for it takes a second that few command lines need

    return torch.cuda.is_available()


def launch_all(runs: Sequence[Launch], where: Where) -> int:
    """Make these runs, print their scores and folders, and return the exit status."""
    folders = []
    failed = False
    with ExitStack() as stack:
        line = stack.enter_context(Line())
        progress = RunLines(line, verbose=where.verbose)
        outcomes = stack.enter_context(closing(launch(runs, where, progress)))
        for number, one in enumerate(runs, 1):
            which = f"run {number} of {len(runs)}: " if len(runs) > 1 else ""
            name = one.settings.strategy
            if len({each.settings.seed for each in runs}) > 1:
                name += f", seed {one.settings.seed}"
            line.say(f"{which}starting {name} on {_nodes(one, where)} ...")
            line.say(f"  {prospect(one.settings, one.done)}")
            progress.begin(f"{which}{name}", where.waits_for)
            outcome = next(outcomes)
            progress.end()
            if outcome.end.failed:
                tell_failure(one.settings.strategy, outcome.end, where.verbose)
                failed = True
            if outcome.folder and (outcome.folder / SUMMARY).is_file():
                folders.append(outcome.folder)
    summaries = [summary_of(folder) for folder in folders]
    scored = [one for one in summaries if one["final"] or one.get("personal")]
    if scored:
        print(f"\n{summary_table(scored, own_scores(folders))}")
        if lines := closing_lines(scored):
            print("\n" + "\n".join(lines))
    for sentence in (answerable(folders), sure_of_the_unknown(folders)):
        if sentence:
            print(f"\n{sentence}")
    if folders:
        print("\nrun folders:\n" + "\n".join(f"  {folder}" for folder in folders))
    return 1 if failed else 0


def _nodes(one: Launch, where: Where) -> str:
    if where.superlink:
        return f"the nodes of {where.superlink}"
    return counted(one.settings.data.clients or 0, "simulated client")
