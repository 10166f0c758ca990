"""Tables for a terminal: columns that stand in line, and the scores of models in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Self

from fedivon_app.core.scores import NUMBER_SCORES, SCORES, Score, known_scores
from fedivon_app.plurals import counted

WAYS = ("mean", "mc")  # how a model predicts: at its mean, and by Monte Carlo
MISSING = "-"
SPREAD_DIGITS = 3  # at the most, where a mean has its standard deviation beside it


@dataclass(frozen=True)
class ScoredRow:
    """A row of a table: words, then the scores of one model or of several, then other cells."""

    words: Sequence[str]
    scores: Sequence[Mapping[str, Any]]
    rest: Sequence[str] = ()


@dataclass(frozen=True)
class ScoreColumns:
    """The scores that a table shows, a column each."""

    scores: Sequence[Score]

    @classmethod
    def of(cls, found: Iterable[Mapping[str, Any]], own: Iterable[str] = ()) -> Self:
        """Return columns for the project's scores, and for all others that were found.

        `own` are the import paths of scores that runs had of their own; a score that is found and
        known from nowhere is shown by its name.
        """
        known = {**NUMBER_SCORES, **known_scores(own)}
        listed = list(found)
        numbers = bool(listed) and all("rmse" in values for values in listed)
        columns = dict(NUMBER_SCORES if numbers else SCORES)
        for values in listed:
            for name in values:
                if name not in columns and name != "samples":
                    columns[name] = known.get(name) or _unknown(name)
        return cls(list(columns.values()))

    @property
    def headings(self) -> list[str]:
        """Return what stands above the columns."""
        return [heading_of(score) for score in self.scores]

    def cells(self, scored: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the cells of a row: of one model its scores, of several their mean and spread."""
        cells = []
        for score in self.scores:
            values = [one[score.name] for one in scored if score.name in one]
            cells.append(_cell(score, values))
        return cells


def layout(rows: Sequence[Sequence[str]], words: int) -> str:
    """Return rows of cells in line, the first of them as a heading.

    The first `words` columns stand to the left; then come numbers, which stand to the right.
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    rule = "-" * (sum(widths) + 2 * len(widths) - 2)
    return "\n".join([lines[0], rule, *lines[1:]])


def scores_table(
    words: Sequence[str],
    rows: Sequence[ScoredRow],
    *,
    left: int | None = None,
    rest: Sequence[str] = (),
    columns: ScoreColumns | None = None,
    own: Iterable[str] = (),
) -> str:
    """Return a table with scores: under `words` and `rest` stand those of the rows.

    The first `left` columns stand to the left, or without it all `words`. Without `columns` all
    scores that the rows have are shown; `own` is as in `ScoreColumns.of`.
    """
    shown = columns or columns_of(rows, own)
    lines = [[*words, *shown.headings, *rest]]
    for row in rows:
        lines.append([*row.words, *shown.cells(row.scores), *row.rest])
    return layout(lines, words=len(words) if left is None else left)


def columns_of(rows: Iterable[ScoredRow], own: Iterable[str] = ()) -> ScoreColumns:
    """Return columns for all scores that the rows have; `own` is as in `ScoreColumns.of`."""
    return ScoreColumns.of((values for row in rows for values in row.scores), own)


def heading_of(score: Score) -> str:
    """Return what a score is called in a terminal, where a share goes by its name: `accuracy %`."""
    return f"{score.name} %" if score.percent else score.label


def way_of(way: str, samples: int | None, model: str = "GM") -> str:
    """Return how a model predicts, in words such as `GM at the mean` or `PM, 64 samples`."""
    return (
        f"{model} at the mean" if way == "mean" else f"{model}, {counted(samples or 0, 'sample')}"
    )


def _cell(score: Score, values: Sequence[float]) -> str:
    if len(values) <= 1:
        return score.text(values[0]) if values else MISSING
    digits = min(score.digits, SPREAD_DIGITS)
    scaled = [100 * value if score.percent else value for value in values]
    return f"{mean(scaled):.{digits}f} ± {stdev(scaled):.{digits}f}"


def _unknown(name: str) -> Score:
    return Score(name=name, label=name, higher_is_better=True, value=lambda tally: float("nan"))
