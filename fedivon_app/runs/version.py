"""Which FedIvon this is: its version, and the commit of its checkout.

Nothing here knows the methods, whose import takes seconds.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import fedivon_app

CODE = ("fedivon_app", "strategies", "clients", "datasets", "conf")  # folders of the checkout


def commit() -> str:
    """Return the commit of the checkout that this code lies in, or nothing where there is none.

    A plus sign says that some of the code is not committed.
    """
    folders = [place for place in fedivon_app.__path__ if (Path(place) / ".git").exists()]
    if not folders:
        return ""
    told = _git(folders[-1], "rev-parse", "--short", "HEAD")
    edited = _git(folders[-1], "status", "--porcelain", "--untracked-files=no", "--", *CODE)
    return told + ("+" if told and edited else "")


def version_text(version: str, commit: str) -> str:
    """Return a version in words, such as `FedIvon 0.1.0, commit 1a2b3c4`; either may be unknown."""
    name = f"FedIvon {version}".rstrip()
    if commit.endswith("+"):
        return f"{name}, commit {commit.rstrip('+')} with uncommitted changes"
    return f"{name}, commit {commit}" if commit else name


def _git(folder: str, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()
