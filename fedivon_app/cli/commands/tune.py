"""Searches for good settings, with equal budgets per method.

Optuna proposes values within the ranges that the methods' settings declare, and hopeless runs are
stopped early. Trials are judged by the NLL on held-out training examples; the test set is used only
at the end, with the best values and new seeds. Everything is kept in DIR/tune-EXPERIMENT[-NAME],
and the same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedivon_app.cli.parser import (
    add_experiment,
    add_simulation,
    add_start,
    positive_number,
    whole_number,
)
from fedivon_app.cli.tables import WAYS, ScoredRow, scores_table, way_of
from fedivon_app.core.files import write_text
from fedivon_app.federation import run_queue
from fedivon_app.federation.run_queue import Where
from fedivon_app.progress import Line
from fedivon_app.runs.check import check
from fedivon_app.runs.plan import folder_name
from fedivon_app.tuning.finals import Final, final_plans, run_finals, seeds_of
from fedivon_app.tuning.makers import Maker, OneByOne, SideBySide
from fedivon_app.tuning.page import About, write_page
from fedivon_app.tuning.proposals import check_installed
from fedivon_app.tuning.search import Clock, Search
from fedivon_app.tuning.set_file import file_text, own_words
from fedivon_app.tuning.space import range_text, read_ranges, words_of
from fedivon_app.tuning.study import Study, Subject, file_name
from fedivon_app.tuning.subjects import Asked, strategies_of, subjects_of, training_examples
from fedivon_app.tuning.telling import Telling
from fedivon_app.tuning.trial_runs import first_plan

BEST = "best.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_experiment(parser)
    add_start(parser)
    parser.add_argument(
        "--budget",
        type=positive_number,
        required=True,
        metavar="N",
        help="rounds for each method, counted in full runs",
    )
    parser.add_argument(
        "--range",
        nargs="+",
        default=[],
        metavar="NAME=LOW:HIGH[:log]",
        help="a range (or NAME=V1,V2) that replaces a method's own, or an additional one",
    )
    parser.add_argument(
        "--start",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="values of the first trial; these settings are searched all the same (default: the "
        "experiment's)",
    )
    parser.add_argument(
        "--first-stop",
        type=positive_number,
        metavar="ROUND",
        help="the round after which trials are first compared (default: a ninth of the rounds)",
    )
    parser.add_argument(
        "--seeds",
        type=whole_number,
        default=3,
        metavar="N",
        help="new seeds for the test scores of the best settings (default: 3)",
    )
    parser.add_argument(
        "--holdout",
        type=positive_number,
        metavar="N",
        help="held-out examples (default: the experiment's, or 2000, but at most a tenth)",
    )
    parser.add_argument(
        "--parallel",
        type=positive_number,
        default=1,
        metavar="K",
        help="federations that run in parallel and share the cores (default: 1)",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="added to the folder's name, for another search"
    )
    add_simulation(parser, engine="inline")
    parser.add_argument("--verbose", action="store_true", help="also show Flower's log")


def run(options: argparse.Namespace) -> int:
    """Search, run the best anew, write the page and the file, and return the exit status."""
    check_installed()
    where = Where(cpus=options.cpus, verbose=options.verbose, engine=options.engine)
    name = folder_name(options.experiment, options.name).removeprefix("sweep-")
    folder = options.runs / f"tune-{name}"
    asked = Asked(
        experiment=options.experiment,
        words=options.set,
        base=where.settings,
        ranges=read_ranges(options.range),
        holdout=options.holdout,
        start=options.start,
        first_stop=options.first_stop,
    )
    strategies = strategies_of(options.experiment, options.strategy, options.set)
    subjects = subjects_of(asked, strategies, folder / "trials")
    check([first_plan(options.experiment, subject) for subject in subjects], blame=True)
    with run_queue.alone_in(folder), Line() as line:
        telling = Telling(line, options.verbose, several=options.parallel > 1)
        studies = [study_of(subject, options.budget, folder) for subject in subjects]
        line.say("\n".join(opening_lines(asked, studies, options.budget, folder)))
        clock = Clock(options.parallel)
        with maker_of(options, where, telling) as maker:
            trials = folder / "trials"
            search = Search(asked.experiment, studies, trials, clock, telling.say, options.seeds)
            search.run(maker)
            finals = finals_of(asked, studies, options.seeds, folder, maker, clock, telling)
        text = best_text(asked, studies)
        about = About(
            experiment=asked.experiment,
            command=command_of(options),
            budget=options.budget,
            seed=subjects[0].settings.seed,
            held_out=subjects[0].settings.data.holdout,
            final_seeds=seeds_of(subjects[0], options.seeds),
            file_text=text,
        )
        page = write_page(about, studies, finals, folder)
        best = write_text(folder / BEST, text)
    print("\n".join(closing_lines(studies, finals)))
    print(f"\npage: {page}\nbest settings, for --set-file: {best}")
    return 0 if ended_well(studies, finals) else 1


def study_of(subject: Subject, budget: int, folder: Path) -> Study:
    """Return the search of a method, new or as it was left."""
    file = folder / "study" / f"{file_name(subject.strategy)}.jsonl"
    return Study(subject, budget * subject.settings.rounds, file)


def maker_of(options: argparse.Namespace, where: Where, telling: Telling) -> Maker:
    """Return who makes the runs: one federation, or several side by side."""
    if options.parallel == 1:
        return OneByOne(where, telling.follow)
    return SideBySide(beside(where, options.parallel), options.parallel, telling.follow)


def beside(where: Where, count: int) -> Where:
    """Return where runs take place of which there are so many at a time: each has its cores."""
    return replace(where, cores=max(1, (os.cpu_count() or 1) // count))


def finals_of(
    asked: Asked,
    studies: Iterable[Study],
    seeds: int,
    folder: Path,
    maker: Maker,
    clock: Clock,
    telling: Telling,
) -> dict[str, Final]:
    """Run the best of every method that has one under new seeds, and return what came of it."""
    words = [*asked.base, f"run.folder={folder / 'best'}"]
    finished = [study for study in studies if study.winner is not None]
    plans = {}
    for study in finished:
        assert study.winner is not None
        new = seeds_of(study.subject, seeds)
        plans[study.strategy] = final_plans(
            asked.experiment, study.subject, study.winner, new, words
        )
    steps = run_finals(
        [plan for own in plans.values() for plan in own],
        folder / "best",
        maker,
        clock,
        telling.say,
    )
    finals = {}
    for study in finished:
        assert study.winner is not None
        own = [step for step in steps if step.plan.settings.strategy == study.strategy]
        finals[study.strategy] = Final(study, study.winner, own)
    return finals


def opening_lines(asked: Asked, studies: Sequence[Study], budget: int, folder: Path) -> list[str]:
    """Return what is going to be searched, and by what."""
    first = studies[0].subject.settings
    lines = [
        f"{asked.experiment}: each of {len(studies)} method{'s' * (len(studies) != 1)} has "
        f"{budget} full runs' worth of rounds, {budget * first.rounds:,}; folder {folder}",
        f"runs are looked at after rounds {', '.join(map(str, studies[0].rungs))}, by the NLL on "
        f"{first.data.holdout:,} of {training_examples(first):,} training examples, which no "
        "client has",
    ]
    if not studies[0].subject.holds_out:
        lines.append(
            "the experiment holds no examples out: these are taken from the clients for the "
            "search, and given back for the runs of the best; --holdout changes their number"
        )
    for study in studies:
        ranges = " ".join(
            f"{name}={range_text(option)}" for name, option in study.subject.space.items()
        )
        done = f", {len(study.trials)} begun before" if study.trials else ""
        lines.append(f"{study.strategy}, about {study.expected} trials{done}: {ranges}")
    return lines


def closing_lines(studies: Iterable[Study], finals: Mapping[str, Final]) -> list[str]:
    """Return the best values of every method, and their test scores."""
    lines = [""]
    for study in studies:
        best = study.winner
        if best is None:
            reasons = [trial.failure for trial in study.trials if trial.failure]
            why = f": {reasons[-1]}" if reasons else ""
            lines.append(f"{study.strategy}: no trial came to its last round{why}")
            continue
        values = study.subject.overrides(best)
        words = " ".join(words_of(values))
        lines.append(f"{study.strategy}: held-out NLL {best.last_score:.4f} with {words}")
        lines += [f"{study.edge_text}; --range may widen it"] if study.edge_text else []
    rows = []
    for final in finals.values():
        for way in WAYS:
            if scored := final.scores(way):
                model = way_of(way, scored[0].get("samples"))
                rows.append(ScoredRow([final.study.strategy, str(len(scored)), model], scored))
    table = scores_table(["strategy", "seeds", "model"], rows) if rows else ""
    return (
        [*lines, *(["", "on the test set, under seeds that the search has not seen:", table])]
        if table
        else lines
    )


def best_text(asked: Asked, studies: Iterable[Study]) -> str:
    """Return the file with the best values of every method."""
    comments = [f"The best settings of a search on {asked.experiment}, by the held-out NLL."]
    methods = {}
    for study in studies:
        best = study.winner
        if best is None:
            continue
        comments.append(f"{study.strategy}: {best.last_score:.4f}, trial {best.number + 1}")
        subject = study.subject
        methods[study.strategy] = own_words(subject.own) | subject.overrides(best)
    return file_text(methods, comments)


def command_of(options: argparse.Namespace) -> str:
    """Return the command line, without what does not change the search."""
    words = ["fedivon", "tune", options.experiment]
    words += ["--strategy", *options.strategy] if options.strategy else []
    words += ["--budget", str(options.budget), "--seeds", str(options.seeds)]
    words += ["--holdout", str(options.holdout)] if options.holdout else []
    words += ["--first-stop", str(options.first_stop)] if options.first_stop else []
    words += ["--range", *options.range] if options.range else []
    words += ["--start", *options.start] if options.start else []
    words += ["--set", *options.set] if options.set else []
    return shlex.join(words)


def ended_well(studies: Iterable[Study], finals: Mapping[str, Final]) -> bool:
    """Tell whether every method has a best, and all of its runs came to their end."""
    found = [finals.get(study.strategy) for study in studies]
    return all(final is not None and len(final.completed) == len(final.steps) for final in found)
