"""Predicts for images and tables, and says how sure it is.

A table is a .csv, .parquet or .feather file with the columns that the model was trained on. Images
can be in any format that Pillow reads, or grey DICOM files; they are converted to the model's
channels and resized (bilinear) to its height and width. An .npz file holds the inputs in an array x
or x_test.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedivon_app.cli.parser import add_checkpoint, add_run, open_share, share, whole_number
from fedivon_app.cli.paths import given_path, near
from fedivon_app.cli.tables import layout
from fedivon_app.core.conformal import Coverage
from fedivon_app.plurals import counted
from fedivon_app.runs.calibration import calibration_of
from fedivon_app.runs.folder import Run
from fedivon_app.runs.predictions import predictions
from fedivon_app.runs.trained_model import Trained

VALUES = ("value", "low", "high", "deviation", "epistemic")  # of what is said of a number
SAMPLES = 64  # by which a posterior predicts unless told otherwise
NUMBERS = ("probability", "entropy", "epistemic")  # of what is said of a picture


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_checkpoint(parser)
    add_run(parser)
    parser.add_argument(
        "file",
        nargs="+",
        type=given_path,
        metavar="FILE",
        help="an image, a folder of images, a table, or an .npz file",
    )
    parser.add_argument(
        "--samples",
        type=whole_number,
        metavar="N",
        help="weight samples (default: 64, or those that sets are calibrated for); "
        "0 predicts at the mean",
    )
    parser.add_argument(
        "--confidence", type=share, default=0.0, metavar="P", help="abstain below this probability"
    )
    parser.add_argument(
        "--coverage",
        type=open_share,
        metavar="P",
        help="also print sets of classes that hold the right one with this probability",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(options: argparse.Namespace) -> int:
    """Print what each picture shows, and return the exit status: 1 if one could not be read."""
    record = Run.open(options.run)
    trained = Trained.open(record, options.checkpoint)
    samples = SAMPLES if options.samples is None else options.samples
    sets = None
    if options.coverage is not None:
        calibrated = calibration_of(record, trained, options.samples)
        samples = calibrated.samples
        sets = calibrated.coverage(options.coverage)
    threshold = sets.threshold if sets else None
    rows = []
    failed = False
    for one in predictions(trained, options.file, samples, options.confidence, threshold):
        if one.error is not None:
            print(f"fedivon: {one.error}", file=sys.stderr)
            failed = True
        elif options.json:
            print(json.dumps({"file": one.name} | one.said), flush=True)
        else:
            rows.append(prediction_row(near(Path(one.name)), one.said))
    if rows:
        more = ["set"] if sets else []
        number = trained.settings.task == "regression"
        head = ["file", *VALUES] if number else ["file", "class", *NUMBERS, *more]
        print(layout([head, *rows], words=1 if number else 2))
    if sets:
        told = sys.stderr if options.json else sys.stdout
        print(("" if options.json else "\n") + coverage_text(sets), file=told)
    return 1 if failed else 0


def prediction_row(name: str, said: Mapping[str, Any]) -> list[str]:
    """Return the cells of a picture: its class, unless the model abstains, and how sure that is.

    Of a number they are its value, an interval of 90 % and how sure that is.
    """
    if "value" in said:
        return [name, *(f"{said[key]:.5g}" for key in VALUES)]
    what = "abstains" if said["abstained"] else str(said["class"])
    numbers = [f"{said[key]:.4f}" for key in NUMBERS]
    among = [", ".join(map(str, said["set"])) or "none"] if "set" in said else []
    return [name, what, *numbers, *among]


def coverage_text(sets: Coverage) -> str:
    """Return in words what sets promise, and what they came to at the clients."""
    examples = counted(sets.examples, "held-out example")
    clients = counted(sets.clients, "client")
    lines = [
        f"A set holds the right class with a probability of {100 * sets.level:g} % or more, for "
        f"examples like the {examples} of {clients} that it is calibrated by.",
        f"On those, a set has {sets.size:.2f} classes on average.",
    ]
    if sets.overall is not None and sets.worst_tenth is not None:
        lines.append(
            f"With each client left out of the calibration in turn, {100 * sets.overall:.1f} % "
            f"of its examples are covered, and {100 * sets.worst_tenth:.1f} % for the worst tenth "
            "of the clients."
        )
    if sets.threshold == 1:
        lines.append(
            f"There are too few held-out examples for {100 * sets.level:g} %: every set has all "
            "classes."
        )
    return "\n".join(lines)
