"""Measures how certain a model is, on known and unknown data.

Writes RUN/uncertainty.json and the run's page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedivon_app.cli.parser import add_checkpoint, add_run, add_samples
from fedivon_app.cli.paths import given_path
from fedivon_app.cli.tables import MISSING, WAYS, ScoredRow, layout, scores_table, way_of
from fedivon_app.core.errors import UserError
from fedivon_app.core.scores import MORE_SCORES
from fedivon_app.progress import Line
from fedivon_app.report.pages import write_report
from fedivon_app.runs.folder import Run
from fedivon_app.runs.uncertainty import assess

OF_FILES = ("npz", "image-folder", "table")  # sources that are the user's own files
UNCERTAINTIES = ("entropy", "aleatoric", "epistemic")  # by which unknown data may be told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_checkpoint(parser)
    add_run(parser)
    parser.add_argument(
        "--ood", metavar="SOURCE", help="a data set that is unknown to the model, such as mnist"
    )
    parser.add_argument(
        "--ood-path",
        type=given_path,
        metavar="FILE",
        help="its file or folder, for the sources npz and image-folder",
    )
    add_samples(parser, "evaluation.final_samples")


def run(options: argparse.Namespace) -> int:
    """Judge the model, print its scores and the page's path, and return the exit status."""
    one = Run.open(options.run)
    check_unknown(
        source=options.ood or one.settings.evaluation.ood,
        path=options.ood_path or one.settings.evaluation.ood_path,
    )
    with Line() as line:
        result = assess(
            one,
            ood=options.ood,
            ood_path=str(options.ood_path) if options.ood_path else None,
            samples=options.samples,
            checkpoint=options.checkpoint,
            show=lambda step: line.change("judging the model", step),
        )
        line.say(uncertainty_table(result, one.settings.evaluation.scores) + "\n")
        if table := class_table(result):
            line.say(table + "\n")
        line.change("drawing", "the run's page")
        page = write_report(one)
    print(page)
    return 0


def check_unknown(source: str | None, path: str | Path | None) -> None:
    """Raise a UserError where unknown data are named by half."""
    if path and not source:
        raise UserError("--ood-path is the file of unknown data: add --ood npz, or its other kind")
    if source in OF_FILES and not path:
        raise UserError(f"--ood {source} needs a file or folder of your own: add --ood-path FILE")


def uncertainty_table(result: Mapping[str, Any], own: Iterable[str] = ()) -> str:
    """Return a table of the scores of each way of predicting, from what `assess` found.

    Where unknown data were given, it says too how well each kind of uncertainty tells them from
    known ones (AUROC). `own` are the import paths of scores that the run had of its own.
    """
    judged = {way: values for way in WAYS if (values := result["ways"].get(way))}
    told_apart = any("ood" in values for values in judged.values())
    kinds = UNCERTAINTIES if told_apart else ()
    rows = []
    for way, values in judged.items():
        areas = values.get("ood", {}).get("auroc", {})
        cells = [MISSING if areas.get(kind) is None else f"{areas[kind]:.4f}" for kind in kinds]
        model = way_of(way, values.get("samples"))
        rows.append(ScoredRow([model], [values["scores"]], rest=cells))
    return scores_table(["model"], rows, rest=[f"AUROC {kind}" for kind in kinds], own=own)


def class_table(result: Mapping[str, Any]) -> str:
    """Return a table of the scores of each class, of the best way of predicting; else nothing."""
    judged = [values for way in WAYS if (values := result["ways"].get(way))]
    scores: Mapping[str, Sequence[float | None]] = judged[-1].get("by_class") or {}
    if not scores:
        return ""
    size = len(next(iter(scores.values())))
    names = result.get("class_names") or [str(number) for number in range(size)]
    rows = [["class", *(MORE_SCORES[name].label for name in scores)]]
    for number, name in enumerate(names):
        values = [values[number] for values in scores.values()]
        rows.append([name, *(MISSING if value is None else f"{value:.4f}" for value in values)])
    return layout(rows, words=1)
