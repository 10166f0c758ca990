"""Assemble the package as an installed wheel has it, out of symbolic links.

In a checkout the folders `strategies/`, `clients/`, `datasets/` and `conf/` lie beside
`fedivon_app/`, and `fedivon_app.__path__` leads an import to them. Tools that read files and import
nothing, such as mypy and the API reference, do not follow `__path__`; they are given this tree
instead. What goes where is read from `pyproject.toml`, from the same table that the wheel is built
by. There is one difference from the wheel: folders of modules get an empty `__init__.py` here, for
the API reference looks into packages only.

    python tools/package_tree.py             # links below build/package
    python tools/package_tree.py FOLDER      # links below FOLDER
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "fedivon_app"


def added_by_the_wheel(root: Path) -> dict[str, Path]:
    """Return what the wheel adds to the package from elsewhere, by the name that it has inside."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    table = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    added = {}
    for source, place in table.items():
        package, _, name = place.partition("/")
        if package != PACKAGE or not name or "/" in name:
            raise ValueError(f"pyproject.toml puts {source} at {place}, not into {PACKAGE}/")
        added[name] = root / source
    return added


def assemble(folder: Path, root: Path = ROOT) -> Path:
    """Bring the tree below `folder` up to date, and return the folder that holds the package.

    Links that are right are left alone, those to something else or to nothing are replaced or
    removed, so that the tree can be assembled again at any time.
    """
    package = folder.resolve() / PACKAGE
    links = _entries(root.resolve() / PACKAGE)
    for name, source in added_by_the_wheel(root.resolve()).items():
        if source.is_dir() and any(source.glob("*.py")):
            _link(package / name, _entries(source))
            (package / name / "__init__.py").touch()
        else:
            links[name] = source
    _link(package, links)
    return package.parent


def _entries(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir() if path.name != "__pycache__"}


def _link(folder: Path, targets: dict[str, Path]) -> None:
    """Let the symbolic links in `folder` be exactly these, relative ones."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {name: os.path.relpath(target, folder) for name, target in targets.items()}
    for path in folder.iterdir():
        if path.is_symlink() and os.readlink(path) != wanted.get(path.name):
            path.unlink()
    for name, target in wanted.items():
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(target)


if __name__ == "__main__":
    print(assemble(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "package"))
