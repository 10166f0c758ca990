"""Settings in words: their types, what they are bounded by, their defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text"}
PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def type_of(annotation: Any, bounds: str = "") -> str:
    """Return the type of a setting in words, with what a number is bounded by."""
    if annotation in WORDS:
        return WORDS[annotation] + bounds
    origin = get_origin(annotation)
    inside = get_args(annotation)
    if origin is Annotated:
        return type_of(inside[0], bounds_of(inside[1:]))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if origin in (Union, UnionType):
        some = " or ".join(type_of(one, bounds) for one in inside if one is not NoneType)
        return f"{some}, or null" if NoneType in inside else some
    if origin in (tuple, list):
        some = PLURALS[inside[0]]
        return f"list of {some}" if origin is list or inside[-1] is ... else f"{len(inside)} {some}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"mapping with {', '.join(f'`{name}`' for name in annotation.model_fields)}"
    return "mapping" if origin is dict else str(annotation)


def bounds_of(metadata: Iterable[Any]) -> str:
    """Return what a number is bounded by, in words that follow its type."""
    found = [
        f", {words} {value:g}"
        for limit in metadata
        for name, words in BOUNDS.items()
        if (value := getattr(limit, name, None)) is not None
    ]
    return "".join(found)


def default_of(field: FieldInfo) -> str:
    """Return the default of a setting as it would be written in YAML."""
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, bool):
        return f"`{str(value).lower().replace('none', 'null')}`"
    if isinstance(value, float):
        return f"`{value:.6g}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def field_type(field: FieldInfo) -> str:
    """Return the type of a setting in words, with the values that are allowed."""
    return type_of(field.annotation, bounds_of(field.metadata))


@dataclass(frozen=True)
class SettingField:
    """A setting by its dotted name, with its declaration and the value that it has."""

    name: str
    field: FieldInfo
    value: Any
    description: str


def setting_fields(section: BaseModel, prefix: str = "") -> Iterator[SettingField]:
    """Yield every setting of a section and of the sections in it, in their order."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from setting_fields(value, f"{prefix}{name}.")
        else:
            yield SettingField(f"{prefix}{name}", field, value, _description(type(section), name))


def _description(section: type[BaseModel], name: str) -> str:
    """What a setting means; where a method narrows one down, the words of the one that it was."""
    for kind in section.__mro__:
        fields = kind.model_fields if issubclass(kind, BaseModel) else {}
        if name in fields and (told := fields[name].description):
            return told
    return ""
