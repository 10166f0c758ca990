"""A table as a page: ours beside the paper's, verdicts, figures, and how it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from fedivon_app.core.files import write_text
from fedivon_app.report import html
from fedivon_app.tables.conditions import places
from fedivon_app.tables.filled import Filled
from fedivon_app.tables.markdown import (
    NOTHING,
    PAPERS,
    SCALE_WORDS,
    age_text,
    difference_text,
    number_text,
    published_text,
    table_text,
)
from fedivon_app.tables.table_file import Block, Row
from fedivon_app.tables.verdicts import Entry

VERDICTS = {True: "agrees", False: "does not agree", None: NOTHING}
DEFINED = (
    "A number agrees if it is within the largest of both deviations and a point of the paper's; a "
    "point is 1 where numbers are in percent, and 0.01 elsewhere. The order agrees if all rows of "
    "a block that the paper sets apart by more than the larger of their deviations and a point "
    "stand in the same order here. Deviations of ours are over seeds, of the sample."
)


def write_page(filled: Filled, folder: Path, pictures: Sequence[Path] = ()) -> Path:
    """Write <table>-<scale>.md and .html to a folder, and return the path of the page."""
    name = f"{filled.table.name}-{filled.scale}"
    write_text(folder / f"{name}.md", table_text(filled, level=1) + "\n")
    return write_text(folder / f"{name}.html", page_text(filled, pictures))


def page_text(filled: Filled, pictures: Sequence[Path] = ()) -> str:
    """Return the page; pictures lie beside it."""
    table = filled.table
    chapters = [html.Chapter("verdict", "Verdict", _verdict(filled))] if table.columns else []
    chapters += [
        html.Chapter(f"block-{place}", block.name, _block(filled, block))
        for place, block in enumerate(table.blocks)
        if any(entry.block == block.name for entry in filled.entries)
    ]
    if pictures:
        drawn = html.grid([_picture(path, filled) for path in pictures])
        chapters.append(html.Chapter("figures", "Figures", drawn))
    chapters.append(html.Chapter("how", "How it was measured", _how(filled)))
    old = "Some rows are older than the code that they depend on." if filled.stale else ""
    return html.page(
        title=f"{table.place}: {table.title}",
        kind=f"{PAPERS[table.paper]}, beside our numbers",
        facts=[f"{filled.state}", f"scale {filled.scale}", age_text(filled)],
        alert=old,
        chapters=chapters,
        foot=f"fedivon reproduce {table.name} --scale {filled.scale}",
    )


def _verdict(filled: Filled) -> str:
    parts = [html.paragraph(f"{filled.state.capitalize()}. {filled.counts}".strip())]
    for order in filled.orders:
        if not order.agrees:
            pairs = ", ".join(f"{better} over {worse}" for better, worse in order.wrong)
            text = f"{order.block}, {order.column}: not in the paper's order: {pairs}."
            parts.append(html.paragraph(text))
    parts += [
        html.paragraph(f"{judged.claim.says} This {judged.verdict}.") for judged in filled.claims
    ]
    return "".join([*parts, html.folded("What the words mean", html.paragraph(DEFINED))])


def _block(filled: Filled, block: Block) -> str:
    entries = {(e.row, e.column): e for e in filled.entries if e.block == block.name}
    columns = [column.name for column in filled.table.columns]
    shown = [row for row in block.rows if any((row.name, name) in entries for name in columns)]
    heads = ["method"]
    for name in columns:
        heads += [name, "paper", "difference", "verdict"]
    rows = []
    for row in shown:
        cells = [html.Cell(row.name)]
        for name in columns:
            cells += _cells(entries[row.name, name])
        rows.append([*cells, *_age(filled, block, row)])
    words = filled.table.scale(filled.scale, block, block.rows[0]).words
    return html.table([*heads, "seeds", "measured"], rows) + html.paragraph(words)


def _cells(entry: Entry) -> list[html.Cell]:
    ours = html.Cell(NOTHING)
    if entry.ours is not None:
        ours = html.Cell(number_text(entry, entry.ours), entry.ours.mean)
    paper = html.Cell(NOTHING)
    if entry.paper is not None:
        paper = html.Cell(published_text(entry.paper), entry.paper.value)
    difference = html.Cell(NOTHING)
    if entry.difference is not None:
        difference = html.Cell(difference_text(entry), entry.difference)
    return [ours, paper, difference, html.Cell(VERDICTS[entry.agrees])]


def _age(filled: Filled, block: Block, row: Row) -> list[html.Cell]:
    age = filled.row_age(block, row)
    if age is None:
        return [html.Cell(NOTHING), html.Cell("not run", long=True)]
    failed = "".join(f"; failed, {one}" for one in age.failed)
    return [html.Cell(str(age.seeds), age.seeds), html.Cell(f"{age.words}{failed}", long=True)]


def _picture(path: Path, filled: Filled) -> str:
    text = escape(f"{filled.table.place}: {filled.table.title}")
    return f'<img src="{escape(path.name)}" alt="{text}">'


def _how(filled: Filled) -> str:
    table = filled.table
    parts = [html.paragraph(table.notes)] if table.notes else []
    scale = f"Scale {filled.scale}, {SCALE_WORDS[filled.scale]}."
    parts.append(html.paragraph(f"{scale} {table.scales[filled.scale].words}".strip()))
    conditions = dict.fromkeys(place.condition for place in places(table, filled.scale))
    if conditions:
        commands = [f"fedivon run {condition.words}" for condition in conditions]
        parts.append(html.folded("The runs, one by one", html.code("\n".join(commands))))
    return "".join(parts)
