"""The notebook runs from its first cell to its last, and says what it says in the repository."""

import json
import re
import runpy

import pytest

from tests.documents import ROOT

TOOL = runpy.run_path(str(ROOT / "tools" / "notebook.py"))


def text_of(notebook: dict) -> str:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return "".join("".join(output["text"]) for output in outputs)


def test_the_notebook_runs_and_its_sets_hold_what_they_promise():
    kept = json.loads(TOOL["NOTEBOOK"].read_text(encoding="utf-8"))
    code = [cell for cell in kept["cells"] if cell["cell_type"] == "code"]
    assert 8 <= len(code) <= 10 and [cell["execution_count"] for cell in code] == [
        *range(1, len(code) + 1)
    ]
    said = text_of(TOOL["run_in_new_folder"](kept))
    covered = re.search(r"(\d+)% of the new patients' diagnoses are in their sets of (\S+)", said)
    assert int(covered[1]) >= 88 and float(covered[2]) < 1.3
    # what was kept is of the same code: other processors round differently, and no more
    numbers = [
        [float(n) for n in re.findall(r"'(?:accuracy|nll|brier)': (\S+?)[,}]", text)]
        for text in (said, text_of(kept))
    ]
    assert len(numbers[0]) == 3
    assert all(abs(a - b) < 0.03 for a, b in zip(*numbers, strict=True))


def test_a_cell_that_fails_is_named():
    broken = {"cells": [{"cell_type": "code", "source": ["x = 1\n", "x / 0"]}]}
    with pytest.raises(ZeroDivisionError) as failed:
        TOOL["executed"](broken)
    assert str(failed.traceback[-1].path) == "cell 1"
