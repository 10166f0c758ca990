"""The settings of a method by their dotted names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedivon_app.core.data_settings import FORMER_DATA_SETTINGS
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.text import did_you_mean

UPPER = ("le", "lt")
LOWER = ("ge", "gt")


def fields_of(kind: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Return the fields of all sections, by dotted names such as `client.learning_rate`."""
    found: dict[str, FieldInfo] = {}
    for name, info in kind.model_fields.items():
        inside = info.annotation
        if isinstance(inside, type) and issubclass(inside, BaseModel):
            found |= fields_of(inside, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = info
    return found


def value_of(settings: BaseModel, name: str) -> Any:
    """Return the value of the setting with this dotted name."""
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def check_names(names: Iterable[str], kind: type[BaseModel], origin: str) -> None:
    """Raise a SettingsError that begins with `origin` for a name that no setting has.

    What is inside of a setting that is a mapping, such as `model.options.sizes`, is its own matter.
    """
    known = fields_of(kind)
    former = {f"data.{name}" for name in FORMER_DATA_SETTINGS}
    for name in names:
        parts = name.split(".")
        above = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        if not above & (known.keys() | former):
            section = name.rpartition(".")[0]
            beside = [one.rpartition(".")[2] for one in known if one.rpartition(".")[0] == section]
            inside = sorted(one for one in known if one.startswith(f"{name}."))
            if inside:
                raise SettingsError(
                    f"{origin}: {name} is a section, and takes values by name, such as {inside[0]}"
                )
            near = did_you_mean(parts[-1], beside or sorted(known))
            raise SettingsError(f"{origin}: there is no setting {name!r}: {near}")


def bound_of(info: FieldInfo, kinds: tuple[str, str]) -> float | None:
    """Return the bound of a number, the upper or the lower one, or None if it has none."""
    found = [getattr(limit, kind, None) for limit in info.metadata for kind in kinds]
    return next((float(bound) for bound in found if bound is not None), None)


def is_whole(info: FieldInfo) -> bool:
    """Tell whether the setting is a whole number."""
    kinds = {info.annotation, *get_args(info.annotation)}
    return int in kinds and float not in kinds


def nested_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted names as nested ones."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *parents, leaf = name.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[leaf] = value
    return nested
