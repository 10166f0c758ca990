"""The app's folder as it is handed to Flower: a copy of the project without environments, data and runs.

Flower looks at every file below an app's folder before it leaves out what .gitignore names, which takes seconds with an
environment there. It also wants a folder with a name of letters, digits and hyphens.
"""

import os
import shutil
from pathlib import Path


def copy_app(project: Path, to: Path) -> Path:
    """Copies what Flower would bundle of the project, by Flower's own rules, to a new folder; that folder."""
    from flwr.cli.utils import build_pathspec, load_gitignore_patterns
    from flwr.supercore.constant import APP_PUBLISH_INCLUDE_PATTERNS

    if not (project / "pyproject.toml").is_file():
        raise FileNotFoundError(
            f"there is no pyproject.toml in {project}: FedIvon runs from its checkout, installed by `pip install -e .`"
        )
    wanted = build_pathspec(APP_PUBLISH_INCLUDE_PATTERNS)
    ignored = build_pathspec([".git/", *load_gitignore_patterns(project / ".gitignore")])
    for place, folders, files in os.walk(project):
        here = Path(place).relative_to(project)
        folders[:] = [
            name for name in folders if not ignored.match_file(f"{(here / name).as_posix()}/")
        ]
        for path in (here / name for name in files):
            if wanted.match_file(path) and not (project / path).is_symlink():
                (to / here).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(project / path, to / path)
    return to
