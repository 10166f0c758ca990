"""Words that several parts of the app say to people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


def did_you_mean(name: object, valid: Iterable[str]) -> str:
    """Return a clause for whoever misspelt a name: the nearest valid name, or else all of them."""
    names = sorted(valid)
    close = get_close_matches(str(name), names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"choose from {', '.join(names)}" if names else "there are none to choose from"


def one_line(text: object) -> str:
    """Return the text of an error, or of anything else, with its line breaks folded away."""
    return " ".join(str(text).split())


def duration(seconds: float) -> str:
    """Return a duration as people say it: `45 s`, `12 min`, `3 h 05 min`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass(frozen=True)
class Unit:
    """A unit of bytes, and how many bytes it has."""

    name: str
    size: float


UNITS = (Unit("GB", 1e9), Unit("MB", 1e6), Unit("kB", 1e3))
BYTE = Unit("B", 1.0)


def data_unit(most: float) -> Unit:
    """Return the unit in which so many bytes read best."""
    return next((one for one in UNITS if most >= one.size), BYTE)


def data_size(count: float) -> str:
    """Return a number of bytes in the unit in which it reads best: `3.2 MB`."""
    best = data_unit(count)
    return f"{count / best.size:.3g} {best.name}"
