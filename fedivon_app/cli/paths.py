"""Paths that a person gives, and paths as a person reads them."""

from __future__ import annotations

from pathlib import Path


def given_path(text: str) -> Path:
    """Return a path that a person gave as an absolute one, a type for argparse.

    It is seen from the folder in which the command was given, whatever folder the processes have
    that the path is handed to.
    """
    return Path(text).expanduser().absolute()


def near(path: Path) -> str:
    """Return a path as it is seen from the working folder, where it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
