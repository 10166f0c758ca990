"""Run examples/notebook.ipynb from its first cell to its last, and keep what the cells say in it.

python tools/notebook.py            # a test runs the same cells, and compares

This is no Jupyter: every cell is executed as plain Python in one process, and of what it prints and
of its last expression the text is kept. So neither the notebook nor its test needs a kernel.
"""

from __future__ import annotations

import ast
import io
import json
import os
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "notebook.ipynb"


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its code cells; an error of a cell is raised."""
    names: dict[str, Any] = {"__name__": "__notebook__"}
    cells = []
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            text = _output("".join(cell["source"]), names, f"cell {number}")
            output = {"name": "stdout", "output_type": "stream"}
            told = [output | {"text": text.splitlines(keepends=True)}] if text else []
            cell = cell | {"execution_count": number, "outputs": told}
        cells.append(cell)
    return notebook | {"cells": cells}


def _output(source: str, names: dict[str, Any], place: str) -> str:
    """What a cell prints, and the value of its last line where that is an expression."""
    body = ast.parse(source, place).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    said = io.StringIO()
    with redirect_stdout(said):
        exec(compile(ast.Module(body, []), place, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), place, "eval"), names)
            if value is not None:
                print(repr(value))
    return said.getvalue()


def run_in_new_folder(notebook: dict[str, Any]) -> dict[str, Any]:
    """Execute the cells in a folder of their own, which is gone afterwards."""
    with tempfile.TemporaryDirectory() as place, chdir(place):
        return executed(notebook)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    made = run_in_new_folder(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    NOTEBOOK.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(NOTEBOOK)
