"""Numbers with the words that they count."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, word: str, several: str | None = None) -> str:
    """Return a number and its word: `1 client`, `2 clients`, or `several` for more than one."""
    return f"{number:,} {word if number == 1 else several or f'{word}s'}"


def listed(words: Iterable[object]) -> str:
    """Return words as a person lists them: `1`, `1 and 2`, `1, 2 and 3`."""
    *others, last = [str(word) for word in words]
    return f"{', '.join(others)} and {last}" if others else last


def numbered(word: str, numbers: Iterable[int]) -> str:
    """Return a word with its numbers: `seed 1`, `seeds 1 and 2`."""
    known = list(numbers)
    return f"{word}{'s' * (len(known) != 1)} {listed(known)}"
