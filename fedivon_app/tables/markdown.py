"""Tables in Markdown: ours beside the paper's, with verdicts, and the list of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from fedivon_app.tables.filled import Filled
from fedivon_app.tables.table_file import Block, Published, Row, Table
from fedivon_app.tables.verdicts import Entry, Number, State

NOTHING = "-"
MARKS = {True: " ✓", False: " ✗", None: ""}
PAPERS = {
    "fedivon": "FedIvon (Pal et al. 2025)",
    "pfedhb": "pFedHB (Thapa and Li 2025)",
    "fischer": "Fischer et al. 2024",
    "bayes-admm": "BayesADMM (Moellenhoff et al. 2025)",
}
SCALE_WORDS = {
    "paper": "as published",
    "here": "as two CPU cores can do it in hours",
    "quick": "in minutes",
}


def table_text(filled: Filled, level: int = 3) -> str:
    """Return a table as Markdown under a heading, with all that there is to say of it."""
    table = filled.table
    parts = [f"{'#' * level} {heading(table)}"]
    parts += [table.notes.strip()] if table.notes.strip() else []
    parts.append(f"```bash\nfedivon reproduce {table.name} --scale {filled.scale}\n```")
    if table.blocks and table.columns:
        parts.append(scale_text(filled))
        parts += [block_text(filled, block) for block in table.blocks if _has(filled, block)]
        parts += [verdict_text(filled)] if filled.measured else ["Nothing of it was run yet."]
    return "\n\n".join(parts)


def heading(table: Table) -> str:
    """Return a table's place in its paper, and what it shows."""
    return f"{PAPERS[table.paper]}, {table.place}: {table.title}"


def scale_text(filled: Filled) -> str:
    """Return what differs from the paper, block by block."""
    table = filled.table
    said = table.scales[filled.scale].words.strip()
    lines = [f"Scale `{filled.scale}`, {SCALE_WORDS[filled.scale]}. {said}".strip()]
    for block in table.blocks:
        own = block.scales.get(filled.scale)
        if own is not None and own.words.strip():
            lines.append(f"- `{block.name}`: {own.words.strip()}")
        if own is not None and own.cannot:
            lines.append(f"- `{block.name}` cannot be run at this scale: {own.cannot.strip()}")
    return "\n".join([lines[0], *([""] if len(lines) > 1 else []), *lines[1:]])


def block_text(filled: Filled, block: Block) -> str:
    """Return the rows of a block as a table, with when and by which code each was measured."""
    columns = [column.name for column in filled.table.columns]
    entries = {(entry.row, entry.column): entry for entry in filled.entries if _in(entry, block)}
    lines = [
        "| " + " | ".join([block.name, *columns, "seeds", "measured"]) + " |",
        "| --- |" + " ---: |" * (len(columns) + 1) + " --- |",
    ]
    for row in block.rows:
        if not any((row.name, column) in entries for column in columns):
            continue  # it was not asked for
        cells = [entry_text(entries[row.name, column]) for column in columns]
        lines.append("| " + " | ".join([row.name, *cells, *_age(filled, block, row)]) + " |")
    return "\n".join(lines)


def _in(entry: Entry, block: Block) -> bool:
    return entry.block == block.name


def _has(filled: Filled, block: Block) -> bool:
    return any(_in(entry, block) and entry.ours is not None for entry in filled.entries)


def _age(filled: Filled, block: Block, row: Row) -> list[str]:
    age = filled.row_age(block, row)
    if age is None:
        return [NOTHING, "not run"]
    failed = "".join(f"; failed, {one}" for one in age.failed)
    return [str(age.seeds), f"{age.words}{failed}"]


def entry_text(entry: Entry) -> str:
    """Return a cell such as `77.7 ± 0.2 (77 ± 0.8; +0.7) ✓`: ours, the paper's, the difference."""
    ours = NOTHING if entry.ours is None else number_text(entry, entry.ours)
    if entry.paper is None:
        return ours
    said = [published_text(entry.paper), *([difference_text(entry)] if entry.ours else [])]
    return f"{ours} ({'; '.join(said)}){MARKS[entry.agrees]}"


def number_text(entry: Entry, number: Number) -> str:
    """Return our number, with its deviation if there is one."""
    text = entry.quantity.text(number.mean)
    spread = number.deviation
    return text if spread is None else f"{text} ± {entry.quantity.text(spread)}"


def difference_text(entry: Entry) -> str:
    """Return ours less the paper's, with its sign."""
    if entry.difference is None:
        return NOTHING
    sign = "-" if entry.difference < 0 else "+"
    return sign + entry.quantity.text(abs(entry.difference))


def published_text(published: Published) -> str:
    """Return the paper's number, with its deviation if it has one."""
    text = f"{published.value:g}"
    return text if published.deviation is None else f"{text} ± {published.deviation:g}"


def verdict_text(filled: Filled) -> str:
    """Return what agrees and what does not, in sentences."""
    said = f": {filled.counts}" if filled.counts else ""
    lines = [f"**{filled.state.capitalize()}**{said}."]
    for order in filled.orders:
        if not order.agrees:
            pairs = ", ".join(f"{better} over {worse}" for better, worse in order.wrong[:4])
            more = f" and {len(order.wrong) - 4} more" if len(order.wrong) > 4 else ""
            lines.append(
                f"- {order.block}, {order.column}: not in the paper's order: {pairs}{more}"
            )
    lines += [f"- {judged.claim.says} This {judged.verdict}." for judged in filled.claims]
    return "\n".join([lines[0], *([""] if len(lines) > 1 else []), *lines[1:]])


def list_text(all_filled: Sequence[Filled]) -> str:
    """Return all tables and figures with what has become of them, as Markdown."""
    lines = ["| table or figure | what it shows | state | scale | measured |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for filled in all_filled:
        lines.append("| " + " | ".join(list_row(filled)) + " |")
    return "\n".join(lines)


def list_row(filled: Filled) -> list[str]:
    """Return a table's name, title, state, scale and age."""
    state = filled.state
    detail = filled.cannot if state is State.CANNOT else filled.counts
    scale = filled.scale if filled.measured else NOTHING
    return [
        f"`{filled.table.name}`",
        filled.table.title,
        f"{state}: {detail}" if detail else str(state),
        scale,
        age_text(filled),
    ]


def age_text(filled: Filled) -> str:
    """Return between which days a table was measured, and whether the code has changed since."""
    dates = [date for age in filled.ages.values() for date in age.dates]
    if not dates:
        return NOTHING
    days = " to ".join(dict.fromkeys([min(dates), max(dates)]))
    old = sum(bool(age.changed) for age in filled.ages.values())
    return days + (f"; {old} of {len(filled.ages)} rows are older than the code" if old else "")
