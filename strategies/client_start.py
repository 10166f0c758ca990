"""Where clients start a round: at the server's posterior, or at its mean alone.

Under some merge rules precisions grow or shrink from round to round, so that clients have to begin
with the precision of the settings; each rule says what it needs (`Rule.start`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from fedivon_app.core.errors import UserError
from fedivon_app.strategies.aggregation import RULES


def with_client_start(values: dict[str, Any], settings: type[BaseModel]) -> dict[str, Any]:
    """Return a run's values with `client.start` filled in, where it is left to the merge rule.

    `settings` is the class that the values are for; its defaults count where a value is not given.
    """
    client = values.get("client") or {}
    merge = values.get("merge") or {}
    if not (isinstance(client, Mapping) and isinstance(merge, Mapping)):
        return values
    if client.get("start", _default(settings, "client", "start", otherwise="given")) is not None:
        return values
    rule = merge.get("rule", _default(settings, "merge", "rule"))
    try:
        start = RULES.find(str(rule)).start
    except UserError:
        return values  # the rule's own validator complains
    return values | {"client": {**client, "start": start}}


def _default(
    settings: type[BaseModel], section: str, name: str, otherwise: object = None
) -> object:
    """Return the default of a setting in a section of the settings."""
    inside = settings.model_fields[section].annotation
    assert isinstance(inside, type) and issubclass(inside, BaseModel)
    field = inside.model_fields.get(name)
    return otherwise if field is None else field.default
