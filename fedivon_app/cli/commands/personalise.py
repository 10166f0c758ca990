"""Fits a personal model to your own data.

The model is trained as in one more round of the run's method. Your file holds x_train, y_train,
x_test and y_test, or is a table with the columns of the run's, and is not sent anywhere. `fedivon
predict` accepts DIR as a run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from fedivon_app.cli.parser import (
    add_checkpoint,
    add_folder,
    add_run,
    add_samples,
    positive_number,
    rate,
)
from fedivon_app.cli.paths import given_path, near
from fedivon_app.cli.tables import ScoredRow, scores_table, way_of
from fedivon_app.plurals import counted
from fedivon_app.runs.folder import Run
from fedivon_app.runs.personalise import personalise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_checkpoint(parser)
    add_run(parser)
    parser.add_argument(
        "--data",
        type=given_path,
        required=True,
        metavar="FILE",
        help="an .npz file or a table with your own data",
    )
    add_folder(parser, "--out", "personal")
    parser.add_argument(
        "--epochs",
        type=positive_number,
        metavar="N",
        help="epochs over your data (default: the run's)",
    )
    parser.add_argument(
        "--learning-rate", type=rate, metavar="X", help="default: that of the run's first round"
    )
    add_samples(parser, "the run's final number")


def run(options: argparse.Namespace) -> int:
    """Fit the model, print its scores beside the global model's, and return the exit status."""
    fitted = personalise(
        Run.open(options.run),
        data=options.data,
        out=options.out,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        samples=options.samples,
        checkpoint=options.checkpoint,
    )
    evaluation = fitted.run.settings.evaluation
    print(personal_table(fitted.scores, evaluation.samples, evaluation.scores))
    tested = counted(fitted.num_test, "test example")
    examples = f"{fitted.num_train:,} training and {tested}"
    print(f"\n{examples} of {near(options.data)}; {near(options.out)}")
    return 0


def personal_table(
    scores: Mapping[str, Mapping[str, Mapping[str, float]]], samples: int, own: Iterable[str] = ()
) -> str:
    """Return a table of a newcomer's PM beside the GM that it came from, on the same test examples.

    `scores` are by model and way of predicting; `own` are the import paths of the run's own scores.
    """
    rows = [
        ScoredRow([way_of(way, samples, model.upper())], [values])
        for model, ways in scores.items()
        for way, values in ways.items()
    ]
    return scores_table(["model"], rows, own=own)
