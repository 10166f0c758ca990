"""The parts of a page.

A page is one HTML file that needs nothing besides itself, in light and dark, on a laptop and on a
phone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import fmean, stdev

from fedivon_app.report.assets import CSS, SCRIPT
from fedivon_app.report.style import Key, look

NOTHING = "—"
MEAN_DIGITS = 3  # at most so many are shown of a mean, beside its deviation


@dataclass(frozen=True)
class Cell:
    """What a table shows, and the number that it is sorted and compared by.

    A `long` cell has words that may take several lines.
    """

    text: str
    value: float = math.nan
    best: bool = False
    long: bool = False


@dataclass(frozen=True)
class Chapter:
    """A part of a page that the list at its top leads to, with a body of HTML."""

    name: str
    title: str
    body: str


def exact_duration(seconds: float) -> str:
    """Return a duration that has been measured, to the second up to an hour: `1 min 39 s`.

    That of `core.text` is for times that are guessed, and rounds more.
    """
    whole = round(seconds) if math.isfinite(seconds) else 0
    hours = whole // 3600
    minutes = whole // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def score_cell(values: Sequence[float], *, digits: int = 4, percent: bool = False) -> Cell:
    """Return one value, or mean ± standard deviation (of the sample, n - 1) of several."""
    if not values or not all(math.isfinite(value) for value in values):
        return Cell(NOTHING)
    scaled = [100 * value for value in values] if percent else list(values)
    if len(scaled) == 1:
        return Cell(f"{scaled[0]:.{digits}f}", scaled[0])
    places = min(digits, MEAN_DIGITS)
    mean = fmean(scaled)
    return Cell(f"{mean:.{places}f} ± {stdev(scaled):.{places}f}", mean)


def mark_best(
    rows: Sequence[Sequence[Cell]], column: int, *, high: bool, alike: Sequence[object]
) -> list[list[Cell]]:
    """Return the rows with the best of a column marked, the highest or the lowest.

    Rows that are `alike` are compared, where there are two or more; what reads the same is as good,
    and where all do, none is the best.
    """
    marked = [list(row) for row in rows]
    for kind in set(alike):
        found = [
            row
            for row, own in zip(marked, alike, strict=True)
            if own == kind and math.isfinite(row[column].value)
        ]
        if len(found) < 2:
            continue
        best = (max if high else min)((row[column] for row in found), key=lambda cell: cell.value)
        as_good = [row for row in found if _reads_as(row[column], best)]
        for row in as_good if len(as_good) < len(found) else ():
            row[column] = replace(row[column], best=True)
    return marked


def _reads_as(cell: Cell, other: Cell) -> bool:
    """Tell whether two numbers are the same in the places that are shown of both."""
    places = min(len(c.text.partition(" ")[0].partition(".")[2]) for c in (cell, other))
    return round(cell.value, places) == round(other.value, places)


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], words: int = 1) -> str:
    """Return a table that scrolls in its own box.

    The first `words` columns hold words, the others numbers.
    """
    kinds = ["" if place < words else ' class="number"' for place in range(len(columns))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(column)}</th>'
        for column, kind in zip(columns, kinds, strict=True)
    )
    body = "\n".join(
        f"<tr>{''.join(_td(cell, kind) for cell, kind in zip(row, kinds, strict=True))}</tr>"
        for row in rows
    )
    box = '<div class="wide" role="region" aria-label="Table" tabindex="0">'
    return f"{box}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _td(cell: Cell, kind: str) -> str:
    text = escape(cell.text)
    if cell.best:
        star = '<span class="star" aria-hidden="true">★</span>'
        text = f"<strong>{text}</strong>{star}<i> best</i>"
    value = f' data-value="{cell.value:.9g}"' if math.isfinite(cell.value) else ""
    attributes = (' class="long"' if cell.long else kind) + value
    return f"<td{attributes}>{text}</td>"


def legend(keys: Sequence[Key]) -> str:
    """Return the names of the series beside pieces of their lines; one alone needs no legend."""
    if len(keys) < 2:
        return ""
    return f'<ul class="legend">{"".join(map(_legend_key, keys))}</ul>'


def _legend_key(key: Key) -> str:
    shape = look(key.style)
    dashes = " ".join(str(2 * dash) for dash in shape.dash)
    line = f'stroke="var(--series-{shape.colour})" stroke-dasharray="{dashes}"'
    path = f'<path d="M1 5H33" stroke-width="3" {line}/>'
    swatch = f'<svg viewBox="0 0 34 10" aria-hidden="true">{path}</svg>'
    button = f'<button type="button" data-series="{key.style}">{swatch}{escape(key.label)}</button>'
    return f"<li>{button}</li>"


def grid(figures: Sequence[str]) -> str:
    """Return figures side by side, as many as there is room for."""
    return f'<div class="grid">{"".join(f"<figure>{figure}</figure>" for figure in figures)}</div>'


def switch(name: str, sides: Mapping[str, str]) -> str:
    """Return bodies of which one is seen at a time, by radio buttons and CSS alone.

    `sides` are the bodies by what their buttons say.
    """
    parts = []
    for place, label in enumerate(sides):
        checked = " checked" if place == 0 else ""
        parts.append(f'<input type="radio" name="{name}" id="{name}-{place}"{checked}>')
        parts.append(f'<label for="{name}-{place}">{escape(label)}</label>')
    parts += [f"<div>{body}</div>" for body in sides.values()]
    return f'<div class="switch">{"".join(parts)}</div>'


def paragraph(text: str, kind: str = "note") -> str:
    """Return a paragraph of plain text."""
    return f'<p class="{kind}">{escape(text)}</p>'


def folded(title: str, body: str) -> str:
    """Return a body of which only the title is seen until it is opened."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def code(text: str) -> str:
    """Return plain text as it stands, to be copied."""
    return f'<div class="code"><pre tabindex="0">{escape(text)}</pre></div>'


def page(
    *,
    title: str,
    kind: str,
    facts: Sequence[str],
    alert: str,
    chapters: Sequence[Chapter],
    foot: str,
    script: str = "",
) -> str:
    """Return the whole file; all arguments but the chapters' bodies and `script` are plain text."""
    line = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    links = "".join(f'<li><a href="#{c.name}">{escape(c.title)}</a></li>' for c in chapters)
    body = "\n".join(
        f'<section id="{c.name}"><h2>{escape(c.title)}</h2>{c.body}</section>' for c in chapters
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{CSS}</style>
</head>
<body>
<header>
<p class="kind">{escape(kind)}</p>
<h1>{escape(title)}</h1>
<ul class="facts">{line}</ul>
{f'<p class="alert" role="note">{escape(alert)}</p>' if alert else ""}
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{body}
</main>
<footer>{paragraph(foot)}</footer>
<script>{SCRIPT}{script}</script>
</body>
</html>
"""
