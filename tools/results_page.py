"""Write docs/results.md from docs/results/page.md and the numbers in docs/results/*.json.

python tools/results_page.py             # `make results`; a test fails while the page is another

In the template, `{{ list }}` stands for the list of all tables and figures, `{{ tables PAPER }}`
for those of a paper of which something was measured.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedivon_app.tables.filled import Filled, best_scale
from fedivon_app.tables.markdown import list_text, table_text
from fedivon_app.tables.pictures import pictures
from fedivon_app.tables.result_file import ResultFiles
from fedivon_app.tables.table_file import read_table, table_names

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = DOCS / "results"
PICTURES = DOCS / "assets" / "results"
NOTE = "<!-- This page is written by `make results`: edit docs/results/page.md. -->\n"


def filled_tables(results: ResultFiles) -> list[Filled]:
    """Return all tables, each at the largest scale at which something was measured."""
    return [best_scale(read_table(name), results) for name in table_names()]


def page(template: str, tables: list[Filled]) -> str:
    """Return the page: the template with its places filled."""

    def place(match: re.Match[str]) -> str:
        what, _, paper = match[1].partition(" ")
        if what == "list":
            return list_text(tables)
        shown = [one for one in tables if one.table.paper == paper and one.measured]
        return "\n\n".join(table_text(one) + _pictures(one) for one in shown)

    return NOTE + re.sub(r"\{\{ ([\w -]+) \}\}", place, template)


def _pictures(filled: Filled) -> str:
    paths = sorted(PICTURES.glob(f"{filled.table.name}-*.png"))
    lines = [f"![{filled.table.title}](assets/results/{path.name})" for path in paths]
    return "".join(f"\n\n{line}" for line in lines)


def main() -> None:
    """Write the page and its pictures."""
    results = ResultFiles(RESULTS)
    tables = filled_tables(results)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in PICTURES.glob("*.png"):
        old.unlink()
    for one in tables:
        if one.measured:
            pictures(one, PICTURES)
    text = page((RESULTS / "page.md").read_text(encoding="utf-8"), tables)
    (DOCS / "results.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
