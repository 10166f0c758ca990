"""Hooks of the site: documents at the top of the repository become pages of it.

README.md is the site's front page, and CONTRIBUTING.md and CHANGELOG.md are pages too. Their links
are written for readers of the repository, from the top of it, and those of the pages in docs/ from
there; the links between the two are turned into links inside of the site.

A page of the reference says in its front matter which package it is about (`package: core`). The
modules of the package that it does not name itself are added at its end, so that none is forgotten.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
TREE = ROOT / "build" / "package" / "fedivon_app"  # made by tools/package_tree.py
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)")


def inside(target: str, document: str) -> str:
    """Return a link's target inside of the site, given the one in a document of the repository.

    Both are relative to where they stand: in README.md `docs/data.md` becomes `data.md`, and in
    docs/reference/index.md `../../CHANGELOG.md` becomes `../changelog.md`.
    """
    if ":" in target:
        return target
    place = normpath(join(dirname(document), target))
    page = PAGES.get(place, place.removeprefix("docs/"))
    own = PAGES.get(document, document.removeprefix("docs/"))
    return relpath(page, dirname(own) or ".")


def with_links_inside(text: str, document: str) -> str:
    """Return a document's text with its links turned into links inside of the site."""
    return _LINK.sub(lambda match: inside(match[1], document), text)


def modules_of(package: str) -> list[str]:
    """Return the full names of the modules in a package of the app, at any depth."""
    if not (TREE / package).is_dir():
        raise FileNotFoundError(f"{TREE / package} is not there: run tools/package_tree.py first")
    files = sorted((TREE / package).rglob("*.py"))
    parts = [file.relative_to(TREE.parent).with_suffix("").parts for file in files]
    return [".".join(names) for names in parts if not names[-1].startswith("__")]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents at the top of the repository to the site."""
    for name, page in PAGES.items():
        content = with_links_inside((ROOT / name).read_text(encoding="utf-8"), name)
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site, and complete the reference."""
    top = page.file.src_uri in PAGES.values()
    text = markdown if top else with_links_inside(markdown, f"docs/{page.file.src_uri}")
    if package := page.meta.get("package"):
        named = re.findall(r"^::: (\S+)$", text, re.M)
        text += "".join(f"\n\n::: {name}" for name in modules_of(package) if name not in named)
    return text
