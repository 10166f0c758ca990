"""Writes a model as ONNX, torch or safetensors.

The file needs nothing of FedIvon. With --samples it holds an ensemble of that many draws of the
weights, as one graph with the outputs `probabilities`, which are their mean, and `epistemic`. A
model of numbers has the outputs `value` and `deviation`, and of an ensemble also `aleatoric` and
`epistemic`. ONNX and torch files are read again and compared with the model before they are kept.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.parser import add_checkpoint, add_run, whole_number
from fedivon_app.cli.paths import given_path, near
from fedivon_app.runs.export import FORMS, export
from fedivon_app.runs.trained_model import Trained


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_checkpoint(parser)
    add_run(parser)
    parser.add_argument("--to", choices=tuple(FORMS), required=True, help="the file's format")
    parser.add_argument(
        "--samples",
        type=whole_number,
        default=0,
        metavar="K",
        help="weight samples in the file (default: 0, the mean alone)",
    )
    parser.add_argument(
        "--bytes",
        action="store_true",
        help="let the graph take pictures as bytes, N x H x W x C, and scale them as in training",
    )
    parser.add_argument(
        "--output",
        type=given_path,
        metavar="FILE",
        help="the file to write (default: model.onnx, .pt2 or .safetensors in the run's folder)",
    )


def run(options: argparse.Namespace) -> int:
    """Write the file, say what is in it, and return the exit status."""
    trained = Trained.open(options.run, options.checkpoint)
    path = options.output or options.run / f"model{FORMS[options.to].suffix}"
    done = export(trained, options.to, path, options.samples, bytes_in=options.bytes)
    what = f"{options.samples} samples" if options.samples else "the mean"
    print(f"{near(done.path)}: {what} after round {trained.round}, {done.size / 1e6:.2f} MB")
    if done.difference is not None:
        print(f"checked: it differs from the model by at most {done.difference:.1e}")
    return 0
