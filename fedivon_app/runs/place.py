"""Where the folders of new runs are made, which can be said in two ways."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml

from fedivon_app.core.dotted import flat
from fedivon_app.core.errors import SettingsError

SETTING = "run.folder"
DEFAULT = "runs"  # in the working folder


def place_of_runs(
    given: str | Path | None, words: Iterable[str], below: Iterable[str] = ()
) -> Path:
    """Return the folder in which the folders of runs are made, as an absolute path.

    It is what is said by `agreed_place`, or else by the overrides `below`, which a file holds, or
    else the default.
    """
    said = agreed_place(given, words)
    return _absolute(said or _setting(below) or DEFAULT)


def agreed_place(given: str | Path | None, words: Iterable[str]) -> str | Path | None:
    """Return the place that is `given`, as `--runs` does, or that the overrides give as a setting.

    Both may be there if they say the same.
    """
    set_to = _setting(words)
    if given and set_to and _absolute(given) != _absolute(set_to):
        raise SettingsError(
            f"run folders cannot be made both in {given} (--runs, or the key `runs`) and in "
            f"{set_to} ({SETTING}): the two mean the same, so give one of them"
        )
    return given or set_to


def _absolute(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()


def _setting(words: Iterable[str]) -> str | None:
    """The setting's last value; what is not valid among the words is said when they are read."""
    found = None
    for word in words:
        name, _, text = word.partition("=")
        try:
            values = flat({name: yaml.safe_load(text)})
        except yaml.YAMLError:
            continue
        found = values.get(SETTING, found)
    return None if found is None else str(found)
