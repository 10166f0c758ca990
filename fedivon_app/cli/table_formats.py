"""Tables of scores in formats for other programs: CSV and JSON with numbers in full, Markdown and
LaTeX with the digits that a reader sees."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

from fedivon_app.cli.tables import ScoreColumns, ScoredRow

Form = Callable[[Sequence[str], Sequence[ScoredRow], ScoreColumns], str]
LATEX = {  # letters that mean something to LaTeX, and what prints them
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def as_csv(words: Sequence[str], rows: Sequence[ScoredRow], columns: ScoreColumns) -> str:
    """Return a line of comma-separated values for each row, under the names of the columns.

    Scores have all their digits, and shares are from 0 to 1.
    """
    records = _records(words, rows, columns)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else words, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().rstrip("\n")


def as_json(words: Sequence[str], rows: Sequence[ScoredRow], columns: ScoreColumns) -> str:
    """Return a list with an object for each row; scores have all their digits."""
    return json.dumps(_records(words, rows, columns), indent=1)


def as_markdown(words: Sequence[str], rows: Sequence[ScoredRow], columns: ScoreColumns) -> str:
    """Return a table in Markdown, as GitHub reads it."""
    heads = [*words, *columns.headings]
    rule = ["---"] * len(words) + ["---:"] * len(columns.headings)
    lines = [heads, rule, *_cells(rows, columns)]
    return "\n".join(f"| {' | '.join(_escaped_bar(cell) for cell in line)} |" for line in lines)


def as_latex(words: Sequence[str], rows: Sequence[ScoredRow], columns: ScoreColumns) -> str:
    """Return a tabular in LaTeX, with the rules of the package booktabs."""
    heads = [*words, *columns.headings]
    body = [_latex_line(line) for line in _cells(rows, columns)]
    places = "l" * len(words) + "r" * len(columns.headings)
    return "\n".join(
        [
            f"\\begin{{tabular}}{{{places}}}",
            r"\toprule",
            _latex_line(heads),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


FORMS: dict[str, Form] = {
    "csv": as_csv,
    "latex": as_latex,
    "markdown": as_markdown,
    "json": as_json,
}


def _records(
    words: Sequence[str], rows: Sequence[ScoredRow], columns: ScoreColumns
) -> list[dict[str, Any]]:
    """The rows by the names of their columns, with scores in full.

    Where rows are of several models, a score has its mean, and after it its standard deviation.
    """
    spread = any(len(row.scores) > 1 for row in rows)
    records = []
    for row in rows:
        record: dict[str, Any] = {
            word: int(cell) if cell.isdigit() else cell
            for word, cell in zip(words, row.words, strict=True)
        }
        record["samples"] = row.scores[0].get("samples", 0)
        for one in columns.scores:
            values = [scores[one.name] for scores in row.scores if one.name in scores]
            record[one.name] = mean(values) if values else None
            if spread:
                record[f"{one.name}_sd"] = stdev(values) if len(values) > 1 else None
        records.append(record)
    return records


def _cells(rows: Sequence[ScoredRow], columns: ScoreColumns) -> list[list[str]]:
    return [[*row.words, *columns.cells(row.scores)] for row in rows]


def _escaped_bar(cell: str) -> str:
    return cell.replace("|", r"\|")


def _latex_line(cells: Sequence[str]) -> str:
    plain = ["".join(LATEX.get(letter, letter) for letter in cell) for cell in cells]
    return f"{' & '.join(plain)} \\\\"
