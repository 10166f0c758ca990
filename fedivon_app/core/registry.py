"""Things that settings choose by name, or by import path where they are the user's own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.text import did_you_mean, one_line

T = TypeVar("T")


def is_import_path(name: str) -> bool:
    """Tell whether a name is of the form `package.module:attribute`."""
    module, colon, attribute = name.partition(":")
    return bool(colon and module and attribute)


def import_by_path(path: str, what: str) -> Any:
    """Return what `package.module:attribute` names; `what` says in complaints what it should be."""
    module_name, colon, attribute = path.partition(":")
    if not (colon and module_name and attribute):
        raise SettingsError(f"{what} {path!r} is not of the form package.module:name")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise SettingsError(
                f"{what} {path!r}: there is no module {missing!r} to import; "
                "install its package where the server and the clients run"
            ) from None
        raise SettingsError(f"{what} {path!r}: its import fails: {one_line(error)}") from error
    except Exception as error:
        raise SettingsError(f"{what} {path!r}: its import fails: {one_line(error)}") from error
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            public = [known for known in vars(module) if not known.startswith("_")]
            raise SettingsError(
                f"{what} {path!r}: {module_name!r} has no {attribute!r}; "
                f"{did_you_mean(attribute, public)}"
            )
        found = getattr(found, name)
    return found


class Registry(Mapping[str, T], Generic[T]):
    """Entries by name, to which one line adds one; `find` also takes the user's own by import path.

    `what` is how complaints call an entry, such as "aggregation rule"; `kind` is the type that a
    user's own entry must have: an instance of it, or with `classes` a subclass.
    """

    def __init__(
        self,
        what: str,
        entries: Mapping[str, T],
        kind: type | None = None,
        *,
        classes: bool = False,
    ):
        self.what = what
        self.kind = kind
        self.classes = classes
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str) -> T:
        """Return the entry of this name or import path.

        A SettingsError says what would be right.
        """
        if name in self._entries:
            return self._entries[name]
        if not is_import_path(name):
            raise SettingsError(
                f"there is no {self.what} {name!r}: {did_you_mean(name, self._entries)}"
            )
        found = import_by_path(name, self.what)
        if self.kind is not None and not self._fits(found):
            wanted = f"a subclass of {self.kind.__name__}" if self.classes else self.kind.__name__
            raise SettingsError(f"{self.what} {name!r} is {found!r}, but {wanted} is needed")
        if self.kind is None and not callable(found):
            raise SettingsError(f"{self.what} {name!r} is {found!r}, which cannot be called")
        entry: T = found
        return entry

    def _fits(self, found: object) -> bool:
        assert self.kind is not None
        if self.classes:
            return isinstance(found, type) and issubclass(found, self.kind)
        return isinstance(found, self.kind)

    def checked(self, name: str) -> str:
        """Return the name if there is such an entry; made for the validators of settings."""
        self.find(name)
        return name
