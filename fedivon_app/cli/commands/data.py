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
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import Division
from fedivon_app.methods import settings_of
from fedivon_app.plurals import counted
from fedivon_app.report.figure_files import format_of, write_figure
from fedivon_app.report.label_plot import divided, label_counts, label_figure, label_names

SHOWN = 40  # clients at most that have a line each
FEW = 8  # classes at most that have a column each


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
    found = divided(settings)
    source = found.source
    title = f"{options.experiment}: {counted(len(found.split.train), 'client')}"
    figure = label_figure(
        label_counts(settings), label_names(source), title, client_names=source.client_names
    )
    print(near(write_figure(figure, path)))
    return 0


def division_text(settings: AnySettings) -> str:
    """Return in words and numbers what the clients have, and what is left for the server."""
    found = divided(settings)
    counts = label_counts(settings)
    data = settings.data
    clients = counted(len(found.split.train), "client")
    regression = settings.task == "regression"
    rows = [["a client's", "smallest", "median", "largest"]]
    rows.append(["training examples", *_spread([len(part) for part in found.split.train])])
    if not regression:
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
    labels = "" if regression else f", {held} of {counted(counts.shape[1], 'label')}"
    lines = [
        f"{clients} of {data.source} by the rule {data.partition}, seed {settings.seed}",
        "",
        layout(rows, words=1),
        "",
        f"all clients: {counted(int(counts.sum()), 'training example')}{labels}",
        f"the server: {held_out:,} held-out and "
        f"{counted(len(found.source.y_test), 'test example')}",
        *([f"not used: {counted(unused, 'training example')}"] if unused else []),
        *_columns_text(found.source),
        *_clients_text(found, counts, regression),
    ]
    return "\n".join(lines)


def _columns_text(source: Source) -> list[str]:
    """What a table's columns are, and how many of their values are missing."""
    form = source.table
    if form is None:
        return []
    texts = [c for c in form.columns if c.categories is not None]
    kinds = f"{len(form.columns) - len(texts)} of numbers, {len(texts)} of categories"
    told = [f"columns: {kinds}; {counted(len(form.features), 'feature')} in all"]
    told += [f"  {column.name}: {', '.join(column.categories or ())}" for column in texts]
    gaps = np.isnan(source.x_train).sum(axis=0) + np.isnan(source.x_test).sum(axis=0)
    missing = {
        column.name: int(gaps[form.features.index(column.features[0])])
        for column in form.columns
        if column.features
    }
    rows = len(source.x_train) + len(source.x_test)
    for name, count in sorted(missing.items(), key=lambda item: -item[1]):
        if count:
            told.append(f"missing: {count:,} of {rows:,} values in {name} ({count / rows:.1%})")
    return told


def _clients_text(found: Division, counts: np.ndarray, regression: bool) -> list[str]:
    """A line for each client that has a name, where there are not too many of them."""
    source = found.source
    names = source.client_names
    if not names or len(names) > SHOWN:
        return []
    few = source.class_names is not None and len(source.class_names) <= FEW
    labels = list(source.class_names or ()) if few else []
    rows = [["client", "training", "test", "missing", *labels, *["mean", "sd"] * regression]]
    for number, name in enumerate(names):
        train = found.split.train[number]
        gaps = int(np.isnan(source.x_train[train]).any(axis=1).sum())
        row = [name, f"{len(train):,}", f"{len(found.split.test[number]):,}", f"{gaps:,}"]
        row += [f"{count:,}" for count in counts[number]] if few else []
        if regression:
            values = source.y_train[train]
            row += [f"{values.mean():.4g}", f"{values.std():.4g}"]
        rows.append(row)
    return ["", layout(rows, words=1), "(missing: training rows in which a value is)"]


def _spread(values: list[int]) -> list[str]:
    """The smallest, the median and the largest of some numbers."""
    return [f"{value:,.1f}".removesuffix(".0") for value in np.percentile(values, (0, 50, 100))]
