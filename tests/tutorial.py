"""A tutorial as somebody follows it: its blocks are typed in one after another, in one folder.

    python -m tests.tutorial docs/tutorials/first-run.md    # shows what every block prints

- The lines of a `bash` block are executed. A line of `fedivon` is carried out in this process, with
  the real server and the real clients; all others are given to bash. Lines that set up an
  environment are left out.
- A `python` block that begins with the name of a file, such as `# mynet.py`, is written to it. All
  others are executed as one session.
- A `text` block quotes what the block before it prints: each of its lines has to be among those,
  but for numbers, which may differ a little, and for dates. A line of three dots stands for others.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from fedivon_app.cli.main import main
from tests import golden
from tests.documents import FILE_NAME, Block, fenced, read, shell_lines
from tests.one_process import in_one_process

SET_UP = ("make env", "source .venv/bin/activate")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
DOTS = "..."


@dataclass
class Reader:
    """Somebody who types a tutorial's blocks in, and sees what they print."""

    patch: pytest.MonkeyPatch
    session: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str = ""

    def follow(self, page: Path) -> Iterator[tuple[Block, str]]:
        """Type all of a page, and yield each block with what it printed."""
        for block in fenced(read(page)):
            if block.language == "bash":
                self.printed = "".join(self.line(one) for one in shell_lines(block.text))
            elif block.language == "python":
                self.printed = self.python(block.text)
            elif block.language == "text":
                missing = [line for line in block.text.splitlines() if not self.saw(line)]
                assert not missing, f"{page.name}: {missing} is not in\n{self.printed}"
            yield block, self.printed

    def line(self, line: str) -> str:
        """Execute a line of a shell, and return what it prints."""
        words = shlex.split(line, comments=True)
        if " ".join(words) in SET_UP:
            return ""
        if words[0] == "export":
            for name, _, value in (word.partition("=") for word in words[1:]):
                self.export(name, os.path.expandvars(value))
            return ""
        if words[0] != "fedivon":
            shell = ["bash", "-euo", "pipefail", "-c", line]
            return subprocess.run(shell, check=True, capture_output=True, text=True).stdout
        return self.fedivon(words[1:])

    def fedivon(self, words: list[str]) -> str:
        """Carry out a command with the files that its words mean; `> FILE` takes what it prints."""
        *words, sign, place = words if ">" in words else [*words, "", ""]
        found = [name for word in words for name in sorted(glob(word)) or [word]]
        with redirect_stdout(io.StringIO()) as printed:
            status = main(found)
        assert status == 0, f"`fedivon {shlex.join(words)}` ended with {status}"
        if sign:
            Path(place).write_text(printed.getvalue())
        return "" if sign else printed.getvalue()

    def export(self, name: str, value: str) -> None:
        """Set a variable, and let this process see what other ones would begin with."""
        self.patch.setenv(name, value)
        if name == "PYTHONPATH":
            self.patch.syspath_prepend(value)

    def python(self, text: str) -> str:
        """Write a block to the file that it names, or execute it."""
        if named := FILE_NAME.match(text):
            place = Path(named[1])
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            return ""
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(text, "tutorial", "exec"), self.session)
        return printed.getvalue()

    def saw(self, line: str) -> bool:
        """Tell whether a line was printed, give or take something in its numbers."""
        return line.strip() in ("", DOTS) or any(
            alike(line, other) for other in self.printed.splitlines()
        )


def alike(quoted: str, printed: str) -> bool:
    """Tell whether two lines say the same: other processors round differently, and days pass."""
    if _words(quoted) != _words(printed):
        return False
    pairs = zip(NUMBER.findall(quoted), NUMBER.findall(printed), strict=True)
    return all(_near(one, other) for one, other in pairs)


def _words(line: str) -> str:
    return " ".join(NUMBER.sub("0", line).split())


def _near(one: str, other: str) -> bool:
    if "." in one:
        return float(one) == pytest.approx(float(other), rel=0.1, abs=0.03)
    return one == other or len(one) == len(other) >= 6  # a date or a time


def typed(page: Path, patch: pytest.MonkeyPatch, folder: Path) -> Iterator[tuple[Block, str]]:
    """Follow a page in a folder, with a federation of this process in place of Flower's."""
    before = {*sys.modules}
    golden.prepare_process()
    in_one_process(patch, reports=True)
    patch.chdir(folder)
    patch.setenv("PWD", str(folder))
    patch.setenv("PATH", str(Path(sys.executable).parent), os.pathsep)
    try:
        yield from Reader(patch).follow(page)
    finally:
        for name in {*sys.modules} - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


if __name__ == "__main__":
    with TemporaryDirectory() as there, pytest.MonkeyPatch.context() as own:
        for shown, said in typed(Path(sys.argv[1]).resolve(), own, Path(there)):
            print(f"\n--- {shown.language}\n{shown.text}\n--- printed\n{said}")
