"""Numbers with the words that they count."""

from __future__ import annotations


def counted(number: int, word: str, several: str | None = None) -> str:
    """Return a number and its word: `1 client`, `2 clients`, or `several` for more than one."""
    return f"{number:,} {word if number == 1 else several or f'{word}s'}"
