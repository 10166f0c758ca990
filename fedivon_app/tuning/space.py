"""What is searched for a method: its settings with the ranges that they declare, or are given."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import yaml

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.search_range import Choices, Option, Plain, Range, declared
from fedivon_app.core.settings import AnySettings
from fedivon_app.report.grouping import written
from fedivon_app.runs.plan import split_values
from fedivon_app.tuning.fields import (
    LOWER,
    UPPER,
    bound_of,
    check_names,
    fields_of,
    is_whole,
    value_of,
)

Space = dict[str, Option]
Values = dict[str, Plain]
DIGITS = 3  # significant ones of a number that is tried
BEYOND = 3.0  # how far a range goes, as a factor, beyond a value that it did not hold
EDGE = 0.05  # the share of a range at either end that may mean that it is too narrow
RATE = "client.learning_rate"
FINAL_RATE = "client.final_learning_rate"


def read_ranges(words: Iterable[str]) -> Space:
    """Return words such as `client.ess=1e3:1e5:log` or `client.optimizer=adam,sgd` as ranges."""
    space: Space = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise SettingsError(
                f"the range {word!r} is not of the form name=low:high, name=low:high:log or "
                "name=value,value, such as client.learning_rate=0.01:1:log"
            )
        if name in space:
            raise SettingsError(f"the range of {name} is given twice")
        space[name] = _range(word, text) if ":" in text else _choices(word, text)
    return space


def _range(word: str, text: str) -> Range:
    parts = text.split(":")
    try:
        low = float(parts[0])
        high = float(parts[1])
    except ValueError:
        raise SettingsError(f"the ends of the range {word!r} are not two numbers") from None
    if len(parts) > 3 or parts[2:] not in ([], ["log"]):
        raise SettingsError(f"the range {word!r} may have :log after its two ends, nothing else")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SettingsError(f"the range {word!r} must go from a number to a larger one")
    log = parts[2:] == ["log"]
    if log and low <= 0:
        raise SettingsError(f"the range {word!r} is logarithmic: it must begin above 0")
    return Range(low, high, log=log)


def _choices(word: str, text: str) -> Choices:
    values = tuple(yaml.safe_load(value) for value in split_values(text))
    if len(values) < 2:
        raise SettingsError(f"the range {word!r} leaves no choice: give two values or more")
    if not all(isinstance(value, str | int | float) for value in values):
        raise SettingsError(f"the choices of {word!r} must be words or numbers")
    return Choices(values)


def space_of(
    settings: AnySettings, given: Mapping[str, Option], fixed: Collection[str] = ()
) -> Space:
    """Return what is searched: ranges that are given, and those that the method declares.

    A declared one holds where the setting is in use, that is neither null nor, where it is searched
    by its logarithm, 0; it is stretched to hold the value that is there. What is `fixed` is not
    searched unless a range is given.
    """
    known = fields_of(type(settings))
    space: Space = {}
    for name, info in known.items():
        if name in given:
            space[name] = _whole(given[name]) if is_whole(info) else given[name]
        elif name not in fixed and (options := declared(info)):
            found = _holding(options, settings, name, given)
            now = value_of(settings, name)
            if found is not None and _in_use(found, now):
                bounds = {"lowest": bound_of(info, LOWER), "highest": bound_of(info, UPPER)}
                space[name] = stretched(found, now, **bounds)
    return space


def _whole(option: Option) -> Option:
    return replace(option, whole=True) if isinstance(option, Range) else option


def check_given(given: Mapping[str, Option], methods: Iterable[AnySettings]) -> None:
    """Raise a SettingsError for a range of a setting that none of the methods has."""
    several = list(methods)
    for name in given:
        if not any(name in fields_of(type(one)) for one in several):
            check_names([name], type(several[0]), "--range")
            raise SettingsError(f"--range: {name} is not a single value that could be searched")


def _holding(
    options: Iterable[Option], settings: AnySettings, name: str, given: Mapping[str, Option]
) -> Option | None:
    """The option whose `where` fits, or all of them together where that is itself searched."""
    section = name.rpartition(".")[0]
    several = list(options)
    conditions = {f"{section}.{key}" for option in several for key in option.where}
    if conditions & given.keys():
        return _union(several)
    return next((one for one in several if _fits(one, settings, section)), None)


def _fits(option: Option, settings: AnySettings, section: str) -> bool:
    return all(
        value_of(settings, f"{section}.{key}") == value for key, value in option.where.items()
    )


def _union(options: Iterable[Option]) -> Option:
    several = list(options)
    ranges = [one for one in several if isinstance(one, Range)]
    if len(ranges) < len(several):
        return several[0]
    return replace(
        ranges[0], low=min(one.low for one in ranges), high=max(one.high for one in ranges)
    )


def _in_use(option: Option, now: object) -> bool:
    if isinstance(option, Choices):
        return now is not None
    number = isinstance(now, int | float) and not isinstance(now, bool)
    return number and (not option.log or float(str(now)) > 0)


def stretched(
    option: Option, now: Plain, lowest: float | None = None, highest: float | None = None
) -> Option:
    """Return the option with the value that is there in it.

    A logarithmic range goes on beyond that value, as far as the setting's own bounds let it.
    """
    if isinstance(option, Choices):
        return option if now in option.values else replace(option, values=(*option.values, now))
    number = float(now)
    factor = BEYOND if option.log else 1.0
    low = option.low
    high = option.high
    if number < low:
        beyond = number / factor
        low = number if lowest is not None and beyond <= lowest else beyond
    if number > high:
        beyond = number * factor
        high = number if highest is not None and beyond >= highest else beyond
    return replace(option, low=low, high=high)


def contains(option: Option, value: object) -> bool:
    """Tell whether a value is one that a search could come to."""
    if isinstance(option, Choices):
        return value in option.values
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and option.low <= float(str(value)) <= option.high


def current(space: Space, settings: AnySettings) -> Values | None:
    """Return the values that are there already, or None if one of them is out of its range."""
    values = {name: value_of(settings, name) for name in space}
    return values if all(contains(space[name], value) for name, value in values.items()) else None


def rounded(value: Plain, option: Option) -> Plain:
    """Return a value as it is tried: of a number a few digits, within its range."""
    if isinstance(option, Choices) or isinstance(value, str | bool):
        return value
    if option.whole:
        return int(value)
    short = float(f"{value:.{DIGITS}g}")
    return min(max(short, option.low), option.high)


def at_the_edge(values: Mapping[str, Plain], space: Space) -> list[str]:
    """Return the settings whose values lie near an end of their range, which may be too narrow."""
    found = []
    for name, option in space.items():
        if isinstance(option, Range) and name in values:
            scale = math.log if option.log else float
            low = scale(option.low)
            place = (scale(float(values[name])) - low) / (scale(option.high) - low)
            found += [name] if min(place, 1 - place) < EDGE else []
    return found


def overrides_of(
    values: Mapping[str, Plain], settings: AnySettings, fixed: Collection[str] = ()
) -> dict[str, Any]:
    """Return the values with what follows from them: a last rate in its ratio to the first.

    `settings` are those without the values, from which the ratio is.
    """
    rate = values.get(RATE)
    final = settings.client.final_learning_rate
    first = settings.client.learning_rate
    keeps = final is None or FINAL_RATE in values or FINAL_RATE in fixed
    if rate is None or keeps or rate == first:
        return dict(values)
    last = float(f"{final * float(rate) / first:.{DIGITS}g}") if final is not None else None
    return {**values, FINAL_RATE: last}


def words_of(overrides: Mapping[str, Any]) -> list[str]:
    """Return overrides as the command line takes them."""
    return [f"{name}={written(value)}" for name, value in overrides.items()]


def range_text(option: Option) -> str:
    """Return what is searched in a few words, as `--range` takes it."""
    if isinstance(option, Choices):
        return ",".join(written(value) for value in option.values)
    return f"{option.low:g}:{option.high:g}{':log' if option.log else ''}"
