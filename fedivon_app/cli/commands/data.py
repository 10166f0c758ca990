"""Shows how an experiment's data are divided among clients.

Prints what the clients of a run would get, by the same rule and seed, and plots the labels of each
client: the darker a cell, the more examples it stands for.
"""

from __future__ import annotations

import argparse

import numpy as np

from fedivon_app.cli.parser import add_experiment
from fedivon_app.cli.paths import given_path, near
from fedivon_app.cli.tables import layout
from fedivon_app.core.compose import compose
from fedivon_app.core.settings import AnySettings
from fedivon_app.methods import settings_of
from fedivon_app.plurals import counted
from fedivon_app.report.figure_files import format_of, write_figure
from fedivon_app.report.label_plot import divided, label_counts, label_figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    add_experiment(parser)
    parser.add_argument(
        "--out",
        type=given_path,
        metavar="FILE",
        help="the plot, as .png, .svg or .pdf (default: ./EXPERIMENT-labels.png)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the numbers, draw the picture, print its path, and return the exit status."""
    path = options.out or given_path(f"{options.experiment}-labels.png")
    format_of(path)  # a wrong suffix is told before data are read
    settings = compose(settings_of, options.experiment, overrides=options.set)
    print(division_text(settings))
    names = divided(settings).source.class_names
    clients = counted(settings.data.clients or 0, "client")
    title = f"{options.experiment}: {clients}"
    print(near(write_figure(label_figure(label_counts(settings), names, title), path)))
    return 0


def division_text(settings: AnySettings) -> str:
    """Return in words and numbers what the clients have, and what is left for the server."""
    found = divided(settings)
    counts = label_counts(settings)
    data = settings.data
    clients = counted(data.clients or 0, "client")
    rows = [["a client's", "smallest", "median", "largest"]]
    rows.append(["training examples", *_spread([len(part) for part in found.split.train])])
    rows.append(["labels", *_spread((counts > 0).sum(axis=1).tolist())])
    if data.partition == "superclass":
        subclasses = np.asarray(found.source.subclass_train)
        rows.append(
            ["subclasses", *_spread([len(np.unique(subclasses[p])) for p in found.split.train])]
        )
    rows.append(["test examples", *_spread([len(part) for part in found.split.test])])
    held_out = len(found.split.holdout)
    unused = len(found.source.y_train) - held_out - int(counts.sum())
    held = int((counts > 0).any(axis=0).sum())
    lines = [
        f"{clients} of {data.source} by the rule {data.partition}, seed {settings.seed}",
        "",
        layout(rows, words=1),
        "",
        f"all clients: {counted(int(counts.sum()), 'training example')}, {held} of "
        f"{counted(counts.shape[1], 'label')}",
        f"the server: {held_out:,} held-out and "
        f"{counted(len(found.source.y_test), 'test example')}",
        *([f"not used: {counted(unused, 'training example')}"] if unused else []),
    ]
    return "\n".join(lines)


def _spread(values: list[int]) -> list[str]:
    """The smallest, the median and the largest of some numbers."""
    return [f"{value:,.1f}".removesuffix(".0") for value in np.percentile(values, (0, 50, 100))]
