"""Where a search looks for the value of a setting: declared on its field, for `fedivon tune`.

    learning_rate: float = Field(0.1, gt=0, json_schema_extra=search(log_range(0.01, 1.0)))

This is not in core/settings.py because no number of a run depends on it: a module that every
method imports counts as a part of all results that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

KEY = "search"
Plain = str | float | bool  # the value of a choice; whole numbers are numbers too


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, evenly by their logarithms with `log`, with `whole` integers.

    It holds where the settings of the same section that `where` names have these values.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False
    where: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True)
class Choices:
    """A few values, in no order; `where` is as in Range."""

    values: tuple[Plain, ...]
    where: Mapping[str, Plain] = field(default_factory=dict)


Option = Range | Choices


def log_range(low: float, high: float, **where: Plain) -> Range:
    """Return a range whose numbers are drawn evenly by their logarithms."""
    return Range(low, high, log=True, where=where)


def even_range(low: float, high: float, **where: Plain) -> Range:
    """Return a range whose numbers are drawn evenly."""
    return Range(low, high, where=where)


def choices(*values: Plain, **where: Plain) -> Choices:
    """Return a choice between these values."""
    return Choices(values, where=where)


def search(*options: Option) -> JsonDict:
    """Return what a field says of its search, as `json_schema_extra` takes it.

    Of several options the first one counts whose `where` fits.
    """
    plain: list[Any] = [asdict(option) for option in options]
    return {KEY: plain}


def declared(info: FieldInfo) -> list[Option]:
    """Return the options that a field declares."""
    extra = info.json_schema_extra
    plain: Any = extra.get(KEY, []) if isinstance(extra, dict) else []
    return [
        Choices(tuple(one["values"]), one["where"]) if "values" in one else Range(**one)
        for one in plain
    ]
