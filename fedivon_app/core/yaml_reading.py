"""Reads YAML that people write: a name that stands twice in one place is an error."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader, libyaml's where it is there, for it is several times faster.

    By itself it would take the last of two values of a name, and say nothing.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        names = (key for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key in names:  # what is no name is an error below
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"{key.value!r} is there twice, again in line {line}")
            seen.add(key.value)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found


def read_yaml(text: str) -> Any:
    """Return what a text in YAML says; what cannot be read is a yaml.YAMLError."""
    return yaml.load(text, Loader)
