"""Tutorials do what they say: every page is followed, block by block, as tests/tutorial.py has it.

What three-sites.md says takes processes that stay; tests/e2e/test_three_sites.py follows it.
"""

from pathlib import Path

import pytest

from tests.documents import TUTORIALS, read
from tests.tutorial import Reader, alike, typed

PAGES = [page for page in TUTORIALS if page.stem != "three-sites"]
LEFT = {
    "first-run": ["labels.png", "runs/*-fedivon/report.html"],
    "your-model": ["runs/*-fedivon/summary.json"],
    "compare": ["comparison/*.html", "table.tex", "table.csv", "curves.pdf"],
    "your-csv": ["table-labels.png", "runs/*-fedivon/summary.json", "own/model.json"],
    "privacy": ["private/*/report.html", "private/*/clients/partition-3/ledger/*.jsonl"],
    "add-a-method": ["runs/*-mymethod.fedavgm-METHOD/summary.json"],
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_can_be_followed(page, tmp_path, monkeypatch):
    followed = list(typed(page, monkeypatch, tmp_path))
    assert any(block.language == "bash" for block, _ in followed)
    assert all(any(tmp_path.glob(pattern)) for pattern in LEFT.get(page.stem, []))


def test_all_of_them_are_known():
    assert {*LEFT} <= {page.stem for page in PAGES}


# The one who follows.


def test_a_quoted_line_may_differ_in_digits_and_dates_alone():
    quoted = "runs/20261118-103803-demo  seed 0  91.55  0.0130"
    assert alike(quoted, "runs/20270101-000000-demo seed 0    90.99  0.0210")
    assert not alike(quoted, "runs/20261118-103803-demo  seed 1  91.55  0.0130")
    assert not alike(quoted, "runs/20261118-103803-demo  seed 0  71.55  0.0130")
    assert not alike(quoted, "runs/20261118-103803-other  seed 0  91.55  0.0130")


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```bash\necho yes\n```\n```text\nno\n```\n", "'no'.* is not in\nyes"),
        ("```bash\nfedivon show nowhere\n```\n", "`fedivon show nowhere` ended with 2"),
        ("```python\nassert 1 > 2\n```\n", "^$"),
    ],
    ids=["another output", "a command that fails", "code that fails"],
)
def test_what_goes_wrong_is_noticed(page, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("page.md").write_text(page)
    with pytest.raises(AssertionError, match=complaint):
        list(Reader(monkeypatch).follow(Path("page.md")))


def test_files_are_written_and_lines_that_set_up_are_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("page.md").write_text(
        "```python\n# inside/one.py\nONE = 1\n```\n"
        "```bash\nsource .venv/bin/activate\nfedivon list > listed.txt\n```\n"
    )
    list(Reader(monkeypatch).follow(Path("page.md")))
    assert "ONE = 1" in read(Path("inside/one.py"))
    assert "no runs" in read(Path("listed.txt")).lower()
