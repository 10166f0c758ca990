"""Predicts for images and tables, and says how sure it is.

A table is a .csv, .parquet or .feather file with the columns that the model was trained on. Images
can be in any format that Pillow reads; they are converted to the model's channels and resized
(bilinear) to its height and width. An .npz file holds the inputs in an array x or x_test.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedivon_app.cli.parser import add_checkpoint, add_run, share, whole_number
from fedivon_app.cli.paths import given_path, near
from fedivon_app.cli.tables import layout
from fedivon_app.runs.predictions import predictions
from fedivon_app.runs.trained_model import Trained

VALUES = ("value", "low", "high", "deviation", "epistemic")  # of what is said of a number
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
        default=64,
        metavar="N",
        help="weight samples (default: 64); 0 predicts at the mean",
    )
    parser.add_argument(
        "--confidence", type=share, default=0.0, metavar="P", help="abstain below this probability"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def run(options: argparse.Namespace) -> int:
    """Print what each picture shows, and return the exit status: 1 if one could not be read."""
    trained = Trained.open(options.run, options.checkpoint)
    rows = []
    failed = False
    for one in predictions(trained, options.file, options.samples, options.confidence):
        if one.error is not None:
            print(f"fedivon: {one.error}", file=sys.stderr)
            failed = True
        elif options.json:
            print(json.dumps({"file": one.name} | one.said), flush=True)
        else:
            rows.append(prediction_row(near(Path(one.name)), one.said))
    if rows:
        number = trained.settings.task == "regression"
        head = ["file", *VALUES] if number else ["file", "class", *NUMBERS]
        print(layout([head, *rows], words=1 if number else 2))
    return 1 if failed else 0


def prediction_row(name: str, said: Mapping[str, Any]) -> list[str]:
    """Return the cells of a picture: its class, unless the model abstains, and how sure that is.

    Of a number they are its value, an interval of 90 % and how sure that is.
    """
    if "value" in said:
        return [name, *(f"{said[key]:.5g}" for key in VALUES)]
    what = "abstains" if said["abstained"] else str(said["class"])
    return [name, what, *(f"{said[key]:.4f}" for key in NUMBERS)]
