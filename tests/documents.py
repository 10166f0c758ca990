"""The documents of the project, and what they quote: command lines, code, names and links."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = [
    *(ROOT / name for name in TOP),
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "results"),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
SHELL_SIGNS = (">", "|", "&")  # what follows is no word of the command
FILE_NAME = re.compile(r"# ([\w/]+\.\w+)\n")  # where a block is to be kept
COMPOSE = re.compile(r"docker compose .*?run --rm fedivon\b")


@dataclass(frozen=True)
class Command:
    """A command line that a document quotes; in running text, it may be a name alone."""

    document: str
    words: tuple[str, ...]
    in_text: bool = False

    def __str__(self) -> str:
        return f"{self.document}: {shlex.join(self.words)}"


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A block of a document between fences: its language and its lines, without their indent."""

    language: str
    text: str


def fenced(text: str) -> list[Block]:
    """The blocks of a document in their order, indented ones too."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.M | re.S)
    return [
        Block(language, "\n".join(line.removeprefix(indent) for line in body.splitlines()))
        for indent, language, body in found
    ]


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a language."""
    return [block.text for block in fenced(text) if block.language == language]


def quoted(text: str) -> list[str]:
    """What stands between backticks in running text, on one line each."""
    running = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
    return [" ".join(words.split()) for words in re.findall(r"(?<!`)`([^`]+)`(?!`)", running)]


def shell_lines(block: str) -> Iterator[str]:
    """The lines of a block of shell, with variables and loops written out."""
    variables: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        line = line.strip()
        if assigned := re.match(r'(\w+)="([^"$]*)"', line):
            variables[assigned[1]] = [assigned[2]]
        elif loop := re.match(r"for (\w+) in (.*); do$", line):
            variables[loop[1]] = loop[2].split()
        elif line not in ("", "done"):
            lines = [line]
            for name, values in variables.items():
                used = any(f"${name}" in one for one in lines)
                if used:
                    lines = [one.replace(f"${name}", value) for one in lines for value in values]
            yield from lines


def commands(path: Path, program: str) -> list[Command]:
    """The lines in a document that call a program; `fedivon` by its compose service too."""
    text = read(path)
    lines = [(line, False) for block in blocks(text, "bash") for line in shell_lines(block)]
    lines += [(line, True) for line in quoted(text)]
    found = []
    for line, in_text in lines:
        line = COMPOSE.sub("fedivon", line)
        first, *others = line.split()
        if first == program and others[:1] != ["|"]:  # `fedivon |` begins the lines of the log
            words = shlex.split(line, comments=True)
            told = takewhile(lambda word: word not in SHELL_SIGNS, words)
            found.append(Command(name_of(path), tuple(told), in_text))
    return found


def all_commands(program: str) -> list[Command]:
    return [command for path in PAGES for command in commands(path, program)]


def links(text: str) -> list[str]:
    """The targets of links and pictures, without those that lead elsewhere."""
    running = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s]+)\)", running)
    return [target for target in targets if ":" not in target]


def example_files() -> dict[str, str]:
    """The files of the package that docs/extending.md writes piece by piece, by their names."""
    written = written_files(ROOT / "docs" / "extending.md")
    return {name.removeprefix("mypackage/"): text for name, text in written.items()}


def written_files(path: Path) -> dict[str, str]:
    """The files that a document has its reader write, by the names in their first lines."""
    named = [(FILE_NAME.match(block), block) for block in blocks(read(path), "python")]
    found = {name[1]: block[name.end() :] for name, block in named if name}
    return {name: text for name, text in found.items() if not (ROOT / name).exists()}


@contextmanager
def example_package(place: Path) -> Iterator[None]:
    """What documents have their readers write below `place`, and the packages in examples/,
    importable while this lasts.
    """
    others = [str(path.parent) for path in (ROOT / "examples").glob("*/pyproject.toml")]
    pages = [ROOT / "docs" / "extending.md", *TUTORIALS]
    files = {name: text for page in pages for name, text in written_files(page).items()}
    for name, text in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    before = list(sys.path)
    sys.path[:0] = [str(place), *others]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before
        tops = {name.partition("/")[0].removesuffix(".py") for name in files}
        for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
            del sys.modules[name]
