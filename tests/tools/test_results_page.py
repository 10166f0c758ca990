"""docs/results.md: that it is what its template and the files of results say."""

import runpy
from pathlib import Path
from types import SimpleNamespace

from fedivon_app.tables.result_file import ResultFiles
from fedivon_app.tables.table_file import table_names

ROOT = Path(__file__).resolve().parents[2]
results_page = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "results_page.py")))
TEMPLATE = (results_page.RESULTS / "page.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_files_say():
    results = ResultFiles(results_page.RESULTS)
    tables = results_page.filled_tables(results)
    fresh = results_page.page(TEMPLATE, tables)
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == fresh, "docs/results.md is not up to date: make results"
    assert all(f"| `{name}` |" in written for name in table_names())
    shown = {one.table.paper for one in tables if one.measured}
    assert all(f"fedivon reproduce {paper}-" in written for paper in shown)


def test_every_place_of_the_template_is_filled():
    text = results_page.page(TEMPLATE, [])
    assert "{{" not in text and text.count("\n## ") == TEMPLATE.count("\n## ")
