"""The figures of a paper, drawn of our own outcomes: a PNG or several for each table that draws.

What a table draws is a word in its file: curves by round, reliability diagrams, retention, accuracy
by the clients' sizes, labels by client, or one of the illustrations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.scores import SCORES
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import did_you_mean
from fedivon_app.figures.bayes_admm import figure_3a, figure_3b, figure_4
from fedivon_app.methods import settings_of
from fedivon_app.report.figure_files import write_figure
from fedivon_app.report.label_plot import divided, label_counts, label_figure
from fedivon_app.report.panel_plot import Panel, panels_figure
from fedivon_app.report.plots import Cloud, Line
from fedivon_app.report.reliability_plot import Bins, diagrams
from fedivon_app.report.results import UNCERTAINTIES
from fedivon_app.report.style import Key
from fedivon_app.tables.outcome import Outcome
from fedivon_app.tables.quantities import QUANTITIES, curve_of, way_of
from fedivon_app.tables.table_file import Block, Cell, Column, Drawing, Row, ScaleName, Table

HALF_BY = "half-by-"  # begins the names of quantities that are read off a retention curve
NEIGHBOURS = 0.2  # of the clients, by size, over which a running mean goes
FEWEST = 5  # clients at the least
SOURCE = "mnist"  # of the pictures in illustrations

Outcomes = Mapping[tuple[str, str], Sequence[Outcome]]  # by the names of the block and the row


def draw(table: Table, outcomes: Outcomes, folder: Path, scale: ScaleName) -> list[Path]:
    """Draw the figures of a table as <table>-<scale>-<nn>.png in a folder, and return their paths.

    A table that draws nothing has none, and what was not measured is not in them. The scale is that
    of the outcomes; pictures of labels and illustrations need no outcomes.
    """
    kind: Drawing | None = "illustration" if table.illustration else table.draws
    if kind is None:
        return []
    figures = FIGURES[kind](Sheet(table, outcomes, scale))
    return [
        write_figure(figure, folder / f"{table.name}-{scale}-{number:02d}.png")
        for number, figure in enumerate(figures, start=1)
    ]


@dataclass(frozen=True)
class Series:
    """A row of a block: how it is drawn, its cell, and its runs that came to an end."""

    key: Key
    cell: Cell
    outcomes: Sequence[Outcome]


@dataclass(frozen=True)
class Sheet:
    """A table with its outcomes at a scale."""

    table: Table
    outcomes: Outcomes
    scale: ScaleName

    def series(self, block: Block, column: Column) -> list[Series]:
        """Return the rows of a block that were measured; a row looks the same in all blocks."""
        names = dict.fromkeys(row.name for one in self.table.blocks for row in one.rows)
        styles = {name: style for style, name in enumerate(names)}
        found = []
        for row in block.rows:
            runs = [run for run in self.outcomes.get((block.name, row.name), ()) if not run.failed]
            if runs:
                key = Key(row.name, styles[row.name])
                found.append(Series(key, self.table.at(block, row, column), runs))
        return found

    @property
    def first_column(self) -> Column:
        """Return the first column; of a table without any, one that says nothing."""
        return self.table.columns[0] if self.table.columns else Column(name="")

    def settings(self, block: Block, row: Row) -> AnySettings:
        """Return the settings of a row's experiment at the scale."""
        cell = self.table.at(block, row, self.first_column)
        if cell.experiment is None:
            where = f"conf/table/{self.table.name}.yaml: {block.name}, {row.name}"
            raise SettingsError(f"{where}: labels are drawn of an experiment, and none is named")
        overrides = [*cell.set, *self.table.scale(self.scale, block, row).set]
        return compose(settings_of, cell.experiment, cell.strategy, overrides)


def curves(sheet: Sheet) -> Iterator[Figure]:
    """Yield a figure of the first column's score by round: a panel a block, a line a row.

    Other columns have a figure too if they are of the same runs, but of another score or model.
    """
    for column in curve_columns(sheet.table):
        panels = []
        for block in sheet.table.blocks:
            series = sheet.series(block, column)
            lines = [line for one in series if (line := _by_round(one, column))]
            if lines:
                panels.append(Panel(block.name, "round", _axis(series), lines))
        if panels:
            yield panels_figure(panels)


def curve_columns(table: Table) -> list[Column]:
    """Return the columns whose scores go by round, one for each score, model and way."""
    found: dict[tuple[object, ...], Column] = {}
    for column in table.columns:
        cells = [table.at(block, row, column) for block in table.blocks for row in block.rows]
        first = [
            table.at(block, row, table.columns[0]) for block in table.blocks for row in block.rows
        ]
        by_round = all(cell.score in SCORES for cell in cells)
        if by_round and [_run(cell) for cell in cells] == [_run(cell) for cell in first]:
            read = tuple((cell.score, cell.model, cell.way, cell.over) for cell in cells)
            found.setdefault(read, column)
    return list(found.values())


def _run(cell: Cell) -> tuple[object, ...]:
    """What of a cell says which runs it is read off."""
    return (cell.experiment, cell.strategy, cell.set)


def _axis(series: Sequence[Series]) -> str:
    """The name of an axis of scores, with whose they are if it is not the global model's."""
    labels = dict.fromkeys(QUANTITIES[one.cell.score].label for one in series if one.cell.score)
    personal = {one.cell.model for one in series} == {"pm"}
    return f"{', '.join(labels)}{' of personal models' if personal else ''}"


def _by_round(series: Series, column: Column) -> Line | None:
    """A row's mean over its runs, in the rounds in which all of them were scored."""
    score = series.cell.score
    assert score is not None
    factor = column.factor * (100 if QUANTITIES[score].percent else 1)
    scored = [curve_of(run, series.cell, score) for run in series.outcomes]
    scored = [curve for curve in scored if curve]
    rounds = sorted(set.intersection(*map(set, scored))) if scored else []
    if not rounds:
        return None
    values = [[factor * curve[number] for number in rounds] for curve in scored]
    return Line.mean(series.key, np.array(rounds), values)


def retention(sheet: Sheet) -> Iterator[Figure]:
    """Yield a figure of the accuracy on the most certain examples: a panel a block and measure."""
    found: dict[str, dict[str, list[Line]]] = {}
    for block in sheet.table.blocks:
        for measure in _measures(sheet.table):
            series = sheet.series(block, sheet.first_column)
            lines = [line for one in series if (line := _retained(one, measure))]
            if lines:
                found.setdefault(block.name, {})[measure] = lines
    measures = [
        name for name in _measures(sheet.table) if any(name in one for one in found.values())
    ]
    panels = [
        Panel(
            title=block,
            x=f"% kept, by least {UNCERTAINTIES[measure].lower()}",
            y="Accuracy %",
            lines=by_measure.get(measure, ()),
        )
        for block, by_measure in found.items()
        for measure in measures
    ]
    if panels:
        yield panels_figure(panels, across=len(measures))


def _measures(table: Table) -> list[str]:
    """The measures of uncertainty that the columns speak of, or all where they name none."""
    scores = [column.cell.score or "" for column in table.columns]
    named = [score.removeprefix(HALF_BY) for score in scores if score.startswith(HALF_BY)]
    return list(dict.fromkeys(named)) or list(UNCERTAINTIES)


def _retained(series: Series, measure: str) -> Line | None:
    """A row's mean over its runs, at the shares of the first of them."""
    found = []
    for run in series.outcomes:
        curve = run.retention.get(f"{way_of(run, series.cell)}.{measure}")
        if curve is not None:
            found.append((run.retention["fractions"], curve))
    if not found:
        return None
    shares = found[0][0]
    values = [[100 * v for v in np.interp(shares, own, curve)] for own, curve in found]
    return Line.mean(series.key, 100 * np.array(shares), values)


def sizes(sheet: Sheet) -> Iterator[Figure]:
    """Yield a figure of the clients' accuracies over their training examples: a panel a block.

    A dot is a client of a run. A line is the running mean over clients of about the same size.
    """
    panels = []
    for block in sheet.table.blocks:
        series = sheet.series(block, sheet.first_column)
        clouds = [cloud for one in series if (cloud := _cloud(one))]
        if clouds:
            lines = [running_mean(cloud) for cloud in clouds]
            panels.append(
                Panel(
                    title=block.name,
                    x="training examples of a client",
                    y="Accuracy %",
                    lines=lines,
                    clouds=clouds,
                    log_x=True,
                )
            )
    if panels:
        yield panels_figure(panels)


def _cloud(series: Series) -> Cloud | None:
    """A row's clients, those of all its runs, by their size."""
    model = series.cell.model or "pm"
    cell = series.cell.model_copy(update={"model": model})
    x: list[float] = []
    y: list[float] = []
    for run in series.outcomes:
        accuracies = run.by_client.get(f"{model}.{way_of(run, cell)}")
        if accuracies is not None:
            x += run.by_client["num_train"]
            y += [100 * value for value in accuracies]
    if not x:
        return None
    order = np.argsort(x, kind="stable")
    return Cloud(series.key.label, series.key.style, np.array(x)[order], np.array(y)[order])


def running_mean(cloud: Cloud) -> Line:
    """Return the mean over neighbours by size, each at the geometric mean of their sizes."""
    count = len(cloud.x)
    width = min(count, max(FEWEST, round(NEIGHBOURS * count)))
    window = np.ones(width) / width
    return Line(
        label=cloud.label,
        style=cloud.style,
        x=np.exp(np.convolve(np.log(cloud.x), window, mode="valid")),
        y=np.convolve(cloud.y, window, mode="valid"),
    )


def reliability(sheet: Sheet) -> Iterator[Figure]:
    """Yield a figure a block, with a reliability diagram for every row.

    A diagram is over the predictions of all the row's runs; the ECE in its title is the mean of the
    runs', as in a table.
    """
    for block in sheet.table.blocks:
        series = sheet.series(block, sheet.first_column)
        panels = {title: bins for one in series for title, bins in _reliability(one).items()}
        if panels:
            yield diagrams(block.name, panels)


def _reliability(series: Series) -> dict[str, Bins]:
    """A row's bins by their title; nothing where no run has any."""
    found = []
    errors = []
    for run in series.outcomes:
        values = run.reliability.get(way_of(run, series.cell))
        if values:
            bins = Bins.of(values)
            scored = list(curve_of(run, series.cell, "ece").values())
            found.append(bins)
            errors += scored[-1:] if bins.ece is None else [bins.ece]
    if not found:
        return {}
    told = f", ECE {np.mean(errors):.3f}" if errors else ""
    return {f"{series.key.label}{told}": Bins.pooled(found)}


def labels(sheet: Sheet) -> Iterator[Figure]:
    """Yield a figure for every row, of its experiment's labels by client at the scale."""
    for block in sheet.table.blocks:
        for row in block.rows:
            if sheet.table.scale(sheet.scale, block, row).cannot:
                continue
            settings = sheet.settings(block, row)
            title = block.name if len(block.rows) == 1 else f"{block.name}, {row.name}"
            names = divided(settings).source.class_names
            yield label_figure(label_counts(settings), names, title)


def illustration(sheet: Sheet) -> Iterator[Figure]:
    """Yield the illustration that the table names."""
    name = sheet.table.illustration or sheet.table.name
    if name not in ILLUSTRATIONS:
        raise SettingsError(
            f"conf/table/{sheet.table.name}.yaml: there is no illustration {name!r}: "
            f"{did_you_mean(name, ILLUSTRATIONS)}"
        )
    yield ILLUSTRATIONS[name]()


def _silent(line: str) -> None:
    """Show nothing of what an illustration tells while it is computed."""


ILLUSTRATIONS: Mapping[str, Callable[[], Figure]] = {
    "bayes-admm-3a": lambda: figure_3a(SOURCE, _silent),
    "bayes-admm-3b": lambda: figure_3b(SOURCE, _silent),
    "bayes-admm-4": lambda: figure_4(_silent),
}
FIGURES: Mapping[Drawing, Callable[[Sheet], Iterator[Figure]]] = {
    "curves": curves,
    "labels": labels,
    "reliability": reliability,
    "retention": retention,
    "sizes": sizes,
    "illustration": illustration,
}
