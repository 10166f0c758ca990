"""The parts of a page: one HTML file that needs nothing besides itself, in light and dark, on a laptop and a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import fmean, stdev

from fedivon_app.report.plots import COLOURS, COLOURS_DARK, INK, MUTED, RULE, look

NOTHING = "—"
UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0}


@dataclass(frozen=True)
class Cell:
    """What a table shows, and the number that it is sorted and compared by."""

    text: str
    value: float = math.nan
    best: bool = False
    long: bool = False  # words that may take several lines


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    body: str


def number(value: object) -> float:
    """The value as a float; what is no finite number is NaN."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def unit(most: float) -> tuple[str, float]:
    """The unit in which so many bytes read best, and its size."""
    return next((name, factor) for name, factor in UNITS.items() if most >= factor or name == "B")


def size(count: float) -> str:
    name, factor = unit(count)
    return f"{count / factor:.3g} {name}"


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds) if math.isfinite(seconds) else 0, 60)
    hours, minutes = divmod(minutes, 60)
    parts = (f"{hours} h", f"{minutes} min") if hours else (f"{minutes} min", f"{seconds} s")
    return " ".join(parts[1:] if not (hours or minutes) else parts)


def score(values: Sequence[float], percent: bool = False) -> Cell:
    """One value, or mean ± standard deviation (of the sample, n - 1) of several; accuracies in %."""
    if not values or not all(math.isfinite(value) for value in values):
        return Cell(NOTHING)
    values = [100 * value for value in values] if percent else list(values)
    if len(values) == 1:
        return Cell(f"{values[0]:.{2 if percent else 4}f}", values[0])
    places = 2 if percent else 3
    return Cell(f"{fmean(values):.{places}f} ± {stdev(values):.{places}f}", fmean(values))


def mark_best(rows: list[list[Cell]], column: int, high: bool, alike: Sequence[object]) -> None:
    """Marks the best of a column among the rows that are `alike`, where there are two or more to compare."""
    for kind in set(alike):
        found = [
            r
            for r, a in zip(rows, alike, strict=True)
            if a == kind and math.isfinite(r[column].value)
        ]
        if len(found) < 2:
            continue
        best = (max if high else min)((row[column] for row in found), key=lambda cell: cell.value)
        as_good = [row for row in found if _reads_as(row[column], best)]
        for row in as_good if len(as_good) < len(found) else ():
            row[column] = replace(row[column], best=True)


def _reads_as(cell: Cell, other: Cell) -> bool:
    """Whether two numbers are the same in the places that are shown of both."""
    places = min(len(c.text.partition(" ")[0].partition(".")[2]) for c in (cell, other))
    return round(cell.value, places) == round(other.value, places)


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], words: int = 1) -> str:
    """A table that scrolls in its own box; the first `words` columns hold words, the others numbers."""
    kinds = [("" if place < words else ' class="number"') for place in range(len(columns))]
    head = "".join(
        f'<th scope="col"{k}>{escape(c)}</th>' for c, k in zip(columns, kinds, strict=True)
    )
    lines = []
    for row in rows:
        cells = []
        for cell, kind in zip(row, kinds, strict=True):
            text = escape(cell.text)
            value = f' data-value="{cell.value:.9g}"' if math.isfinite(cell.value) else ""
            if cell.best:
                text = f'<strong>{text}</strong><span class="star" aria-hidden="true">★</span><i> best</i>'
            kind = ' class="long"' if cell.long else kind
            cells.append(f"<td{kind}{value}>{text}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(lines)
    box = '<div class="wide" role="region" aria-label="Table" tabindex="0">'
    return f"{box}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def legend(items: Sequence[tuple[str, int]]) -> str:
    """What the lines of the figures below it stand for; nothing where there is only one."""
    if len(items) < 2:
        return ""
    keys = []
    for label, style in items:
        colour, dash, _ = look(style)
        line = f'stroke="var(--series-{colour})" stroke-dasharray="{" ".join(str(2 * d) for d in dash)}"'
        swatch = f'<svg viewBox="0 0 34 10" aria-hidden="true"><path d="M1 5H33" stroke-width="3" {line}/></svg>'
        keys.append(
            f'<li><button type="button" data-series="{style}">{swatch}{escape(label)}</button></li>'
        )
    return f'<ul class="legend">{"".join(keys)}</ul>'


def grid(figures: Sequence[str]) -> str:
    return f'<div class="grid">{"".join(f"<figure>{figure}</figure>" for figure in figures)}</div>'


def switch(name: str, sides: Sequence[tuple[str, str]]) -> str:
    """Bodies of which one is seen at a time, by radio buttons and CSS alone."""
    parts = []
    for place, (label, _) in enumerate(sides):
        checked = " checked" if place == 0 else ""
        parts.append(f'<input type="radio" name="{name}" id="{name}-{place}"{checked}>')
        parts.append(f'<label for="{name}-{place}">{escape(label)}</label>')
    return f'<div class="switch">{"".join(parts)}{"".join(f"<div>{body}</div>" for _, body in sides)}</div>'


def paragraph(text: str, kind: str = "note") -> str:
    return f'<p class="{kind}">{escape(text)}</p>'


def folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def code(text: str) -> str:
    return f'<div class="code"><pre tabindex="0">{escape(text)}</pre></div>'


def page(
    title: str, kind: str, facts: Sequence[str], alert: str, sections: Sequence[Section], foot: str
) -> str:
    """The whole file. All arguments but the sections' bodies are plain text."""
    line = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    links = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections)
    body = "\n".join(
        f'<section id="{s.name}"><h2>{escape(s.title)}</h2>{s.body}</section>' for s in sections
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
<script>{SCRIPT}</script>
</body>
</html>
"""


def _series(colours: Sequence[str]) -> str:
    return "; ".join(f"--series-{place}: {colour}" for place, colour in enumerate(colours))


CSS = (
    f":root {{ --paper: #ffffff; --ink: {INK}; --muted: {MUTED}; --rule: {RULE}; --tint: #f5f6f8; --accent: #2348b5; "
    f"--alert: #9a3412; {_series(COLOURS)} }}\n"
    "@media (prefers-color-scheme: dark) { :root { --paper: #15181d; --ink: #e8eaed; --muted: #a3abb6; "
    f"--rule: #30363f; --tint: #1d2127; --accent: #9dbbff; --alert: #ffb089; {_series(COLOURS_DARK)} }} }}"
    """
* { box-sizing: border-box }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100% }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto } }
body { margin: 0 auto; max-width: 1120px; padding: 3.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere }
h1 { margin: .1rem 0 .8rem; font-size: clamp(1.5rem, 4vw, 2.1rem); font-weight: 650; line-height: 1.2;
  letter-spacing: -.015em }
h2 { margin: 0 0 .5rem; font-size: 1.25rem; font-weight: 620; letter-spacing: -.005em }
h3 { margin: 2rem 0 .6rem; font-size: 1rem; font-weight: 600 }
section { margin-top: 4rem; scroll-margin-top: 1.5rem }
p { margin: 0 0 1rem; max-width: 46rem }
.kind { margin: 0; color: var(--muted); font-size: .85rem; letter-spacing: .04em }
.note { color: var(--muted); font-size: .95rem }
.alert { margin: 1.5rem 0 0; padding: .7rem 1rem; border-left: 3px solid var(--alert); background: var(--tint);
  color: var(--alert); white-space: pre-line }
a { color: var(--accent); text-decoration: none }
a:hover { text-decoration: underline }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
ul { margin: 0; padding: 0; list-style: none }
.facts { display: flex; flex-wrap: wrap; gap: .15rem 0; color: var(--muted) }
.facts li:not(:last-child)::after { content: "·"; margin: 0 .55rem }
nav { margin-top: 1.6rem; padding-top: .9rem; border-top: 1px solid var(--rule); font-size: .9rem }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem }
.wide { overflow-x: auto; margin: 0 0 1rem; overflow-wrap: normal }
table { border-collapse: collapse; min-width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums }
th, td { padding: .42rem 1rem .42rem 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top;
  white-space: nowrap }
th { color: var(--muted); font-weight: 500; font-size: .85rem }
td.long { white-space: normal; min-width: 16rem }
.number { text-align: right }
td.number { position: relative }
th.number, td.number { padding-right: 1.6rem }
th:first-child, td:first-child { position: sticky; left: 0; z-index: 1; background: var(--paper);
  min-width: 8.5rem; max-width: 20rem; white-space: normal; overflow-wrap: break-word }
tbody tr:hover, tbody tr:hover td:first-child { background: var(--tint) }
strong { font-weight: 680 }
.star { position: absolute; padding-left: .35rem; color: var(--accent); font-size: .8em; line-height: 2 }
td i { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
th button { all: unset; cursor: pointer }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
th button::after { content: "↕"; margin-left: .35em; opacity: .45 }
th[aria-sort=ascending] button::after { content: "↑"; opacity: 1 }
th[aria-sort=descending] button::after { content: "↓"; opacity: 1 }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 310px), 1fr)); gap: 1.8rem 2rem;
  align-items: start }
figure { margin: 0; max-width: 460px }
figure svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { font-family: inherit }
svg * { stroke-linejoin: round; stroke-linecap: butt }
.series { transition: opacity .15s }
.series.dim { opacity: .1 }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: .4rem 0 1.2rem; font-size: .88rem }
.legend button { display: inline-flex; align-items: center; gap: .5rem; padding: .15rem .2rem; border: 0;
  background: none; color: inherit; font: inherit; text-align: left; border-radius: 4px }
.live .legend button { cursor: pointer }
.legend button[aria-pressed=true] { background: var(--tint); box-shadow: 0 0 0 1px var(--rule) }
.legend svg { flex: none; width: 34px; height: 10px; fill: none }
.switch input { position: absolute; opacity: 0; pointer-events: none }
.switch label { display: inline-block; margin: 0 0 1.1rem; padding: .25rem .9rem; border: 1px solid var(--rule);
  color: var(--muted); font-size: .88rem; cursor: pointer }
.switch label:first-of-type { border-radius: 6px 0 0 6px }
.switch label:last-of-type { border-radius: 0 6px 6px 0; border-left: 0 }
.switch input:checked + label { background: var(--tint); color: var(--ink); font-weight: 600 }
.switch input:focus-visible + label { outline: 2px solid var(--accent); outline-offset: 2px }
.switch > div { display: none }
.switch input:nth-of-type(1):checked ~ div:nth-of-type(1), .switch input:nth-of-type(2):checked ~ div:nth-of-type(2) {
  display: block }
details { margin: 0 0 .5rem; border: 1px solid var(--rule); border-radius: 6px }
summary { padding: .6rem 1rem; cursor: pointer }
details > :not(summary) { margin: 0; padding: 0 1rem 1rem }
.code { position: relative }
.code + details { margin-top: 1rem }
pre { margin: 0; padding: .9rem 1rem; overflow: auto; max-height: 34rem; background: var(--tint); border-radius: 6px;
  font: .84rem/1.55 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap }
.code button { position: absolute; top: .5rem; right: .5rem; padding: .1rem .6rem; border: 1px solid var(--rule);
  border-radius: 5px; background: var(--paper); color: var(--muted); font: inherit; font-size: .8rem; cursor: pointer }
details .code button { right: 1.5rem }
footer { margin-top: 4rem; padding-top: 1rem; border-top: 1px solid var(--rule) }
@media (max-width: 600px) {
  body { padding: 1.6rem 1rem 3rem }
  section { margin-top: 3rem }
  th:first-child, td:first-child { max-width: 9.5rem }
}
@media print { .switch > div { display: block } .code button { display: none } }
"""
)

# Extras only: a series comes forward when its legend is pointed at or pressed, columns can be sorted, code be copied.
SCRIPT = """
"use strict";
document.documentElement.classList.add("live");
let pinned = null;
const show = only => document.querySelectorAll(".series").forEach(
  e => e.classList.toggle("dim", only !== null && e.dataset.series !== only));
const keys = document.querySelectorAll(".legend button");
keys.forEach(key => {
  key.addEventListener("pointerenter", () => show(key.dataset.series));
  key.addEventListener("pointerleave", () => show(pinned));
  key.addEventListener("click", () => {
    pinned = pinned === key.dataset.series ? null : key.dataset.series;
    keys.forEach(k => k.setAttribute("aria-pressed", String(k.dataset.series === pinned)));
    show(pinned);
  });
});
document.querySelectorAll("table").forEach(table => {
  const body = table.tBodies[0];
  if (body.rows.length < 3) return;
  table.querySelectorAll("th").forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach(h => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const order = (a, b) => {
        const [x, y] = [a, b].map(row => row.cells[place]);
        const [p, q] = [x, y].map(cell => parseFloat(cell.dataset.value));
        if (isNaN(p) !== isNaN(q)) return isNaN(p) ? 1 : -1;
        return (up ? 1 : -1) * (isNaN(p) ? x.textContent.localeCompare(y.textContent) : p - q);
      };
      body.append(...[...body.rows].sort(order));
    });
  });
});
if (navigator.clipboard) document.querySelectorAll(".code").forEach(block => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", () => navigator.clipboard.writeText(block.querySelector("pre").textContent).then(
    () => { button.textContent = "Copied"; }, () => { button.textContent = "Not allowed"; }));
  block.append(button);
});
"""
