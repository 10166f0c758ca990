"""The app's folder as it is handed to Flower: a copy without environments, data and runs.

Flower looks at every file below an app's folder before it leaves out what .gitignore names, which
takes seconds with an environment there. It also wants a folder with a name of letters, digits and
hyphens.

In a checkout pyproject.toml lies beside the package, in an installed wheel inside of it, as do the
folders `strategies`, `clients`, `datasets` and `conf`. Flower can be given either.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from hashlib import sha256
from pathlib import Path

from flwr.cli.build import build_fab_from_disk
from flwr.cli.utils import build_pathspec, load_gitignore_patterns
from flwr.supercore.constant import APP_PUBLISH_INCLUDE_PATTERNS

import fedivon_app
from fedivon_app.core.errors import FlowerError

PACKAGE = Path(fedivon_app.__file__).resolve().parent
PROJECT_FILE = "pyproject.toml"


def app_root(package: Path = PACKAGE) -> Path:
    """Return the folder that holds the app: the checkout, or the package that was installed."""
    if is_checkout(package.parent):
        return package.parent
    if (package / PROJECT_FILE).is_file():
        return package
    raise FlowerError(
        f"there is no {PROJECT_FILE} of FedIvon in {package.parent} or {package}, which Flower "
        "needs: install FedIvon again, as a wheel or by `pip install -e .` from its checkout"
    )


def is_checkout(folder: Path) -> bool:
    """Tell whether this is the folder of FedIvon's own pyproject.toml."""
    try:
        project = tomllib.loads((folder / PROJECT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(project.get("project", {}).get("name") == "fedivon")


def working_folder(package: Path = PACKAGE) -> Path:
    """Return the folder in which Flower's processes run: the checkout, or else the current one."""
    return package.parent if is_checkout(package.parent) else Path.cwd()


def bundle_hash() -> str:
    """Return the SHA-256 of the bundle that Flower makes of this app, as it is now."""
    with tempfile.TemporaryDirectory() as place:
        content = build_fab_from_disk(copy_app(app_root(), Path(place) / "fedivon"))
    return sha256(content).hexdigest()


def copy_app(root: Path, to: Path) -> Path:
    """Copy the app, as `app_root` finds it, to a new folder in the form of a checkout; return that.

    What is copied is what Flower would bundle, by its own rules. A folder that is a package itself
    comes as such: below its name, with its pyproject.toml beside it.
    """

    if not (root / PROJECT_FILE).is_file():
        raise FlowerError(f"there is no {PROJECT_FILE} in {root}: it is not an app of Flower's")
    installed = (root / "__init__.py").is_file()
    inside = to / root.name if installed else to
    wanted = build_pathspec(APP_PUBLISH_INCLUDE_PATTERNS)
    ignored = build_pathspec([".git/", *load_gitignore_patterns(root / ".gitignore")])
    for place, folders, files in os.walk(root):
        here = Path(place).relative_to(root)
        folders[:] = [
            name for name in folders if not ignored.match_file(f"{(here / name).as_posix()}/")
        ]
        for path in (here / name for name in files):
            if wanted.match_file(path) and not (root / path).is_symlink():
                (inside / here).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / path, inside / path)
    if installed:
        (inside / PROJECT_FILE).rename(to / PROJECT_FILE)
    return to
