"""Write docs/all-settings.md: every setting with its type, its default and what it means.

python tools/settings_page.py            # a test fails while the page is not what this writes
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.setting_words import default_of, field_type
from fedivon_app.core.settings import Settings
from fedivon_app.methods import METHODS, settings_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "all-settings.md"
HEAD = """# All settings

This page is written by `python tools/settings_page.py` from the code. Each setting is named by its
section and its name, such as `data.alpha`. The defaults are those of the code; the files in
`conf/strategy`, `conf/data` and `conf/experiment` give other values, and
`fedivon settings EXPERIMENT` prints what a run would use. [Settings](settings.md) says how they are
composed.
"""
CLIENT = """## client: local training

Every method has these:
"""
MERGE = """## merge: what the server does with the replies

Every method has these, of which [Methods](methods.md) has the rules and the weightings. Most
methods narrow them down to what their paper says, and some add to them:
"""


def row(section: str, name: str, field: FieldInfo) -> str:
    """Return a setting's line of the table."""
    cells = [f"`{section}{name}`", field_type(field), default_of(field), field.description or ""]
    return f"| {' | '.join(cells)} |"


def table(section: str, fields: dict[str, FieldInfo]) -> str:
    """Return a table of settings."""
    rows = [row(section, name, field) for name, field in fields.items()]
    return "\n".join(
        ["| setting | type | default | what it means |", "| --- | --- | --- | --- |", *rows]
    )


def new_in(kind: type[BaseModel], common: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the settings that a class has beside the common ones, or has in another way."""
    known = {name: row("", name, field) for name, field in common.model_fields.items()}
    return {
        name: field
        for name, field in kind.model_fields.items()
        if row("", name, field) != known.get(name)
    }


def by_class(section: str, common: type[BaseModel]) -> str:
    """Return what the methods add to a section: a table for each class of settings."""
    methods: dict[type[BaseModel], list[str]] = {}
    for name in METHODS:
        kind = settings_of(name).model_fields[section].annotation
        assert isinstance(kind, type) and issubclass(kind, BaseModel)
        methods.setdefault(kind, []).append(f"`{name}`")
    parts = []
    for kind, names in methods.items():
        if added := new_in(kind, common):
            parts.append(f"### {section} of {', '.join(names)}\n\n{table(f'{section}.', added)}")
    return "\n\n".join(parts)


def page() -> str:
    """Return the whole page."""
    plain = {}
    sections = []
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        if name in ("client", "merge"):
            continue
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            about = " ".join((kind.__doc__ or "").split())
            sections.append(f"## {name}\n\n{about}\n\n{table(f'{name}.', kind.model_fields)}")
        else:
            plain[name] = field
    return "\n\n".join(
        [
            HEAD.rstrip(),
            f"## The run as a whole\n\n{table('', plain)}",
            *sections,
            f"{CLIENT}\n{table('client.', ClientSettings.model_fields)}",
            by_class("client", ClientSettings),
            f"{MERGE}\n{table('merge.', MergeSettings.model_fields)}",
            by_class("merge", MergeSettings) + "\n",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
