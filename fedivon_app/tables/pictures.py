"""All pictures of a filled table: those that the paper has, and our numbers beside its own."""

from __future__ import annotations

import re
from pathlib import Path

from fedivon_app.report.beside_plot import Pair, beside_figure
from fedivon_app.report.figure_files import write_figure
from fedivon_app.tables.drawings import draw
from fedivon_app.tables.filled import Filled
from fedivon_app.tables.table_file import Block
from fedivon_app.tables.verdicts import Entry


def pictures(filled: Filled, folder: Path) -> list[Path]:
    """Draw what there is to draw of a table, and return the paths of the files."""
    table = filled.table
    if table.draws != "labels" and not table.illustration and not filled.measured:
        return []
    drawn = draw(table, filled.outcomes, folder, filled.scale)
    return [*drawn, *(path for block in table.blocks for path in _beside(filled, block, folder))]


def _beside(filled: Filled, block: Block, folder: Path) -> list[Path]:
    """The picture of a block, where the paper has numbers and we have some of them."""
    entries = [entry for entry in filled.entries if entry.block == block.name]
    if not any(entry.agrees is not None for entry in entries):
        return []
    panels: dict[str, list[Pair]] = {}
    for entry in entries:
        panels.setdefault(entry.column, []).append(_pair(entry))
    name = re.sub(r"[^a-z0-9]+", "-", block.name.lower())
    path = folder / f"{filled.table.name}-{filled.scale}-beside-{name}.png"
    title = f"{filled.table.place}, {block.name}"
    return [write_figure(beside_figure(title, panels), path)]


def _pair(entry: Entry) -> Pair:
    ours = entry.ours
    paper = entry.paper
    return Pair(
        name=entry.row,
        ours=None if ours is None else ours.mean,
        our_deviation=0.0 if ours is None else ours.deviation or 0.0,
        theirs=None if paper is None else paper.value,
        their_deviation=0.0 if paper is None else paper.deviation or 0.0,
    )
