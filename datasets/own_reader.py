"""Data by a reader of the user's own: a function that is named by its import path.

The function is called by keyword, with what its signature takes of `root`, `path`, `num_clients`,
`seed` and the source's options; one with `**options` takes them all. It returns a Source, or a
mapping of arrays with the keys of the npz format (datasets/npz.py) and, if it likes, `num_classes`:

    def read(path, delimiter=","):
        table = numpy.loadtxt(path, delimiter=delimiter)
        ...
        return {"x_train": ..., "y_train": ..., "x_test": ..., "y_test": ...}
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.core.text import did_you_mean, one_line
from fedivon_app.datasets.base import FIELDS, Source, blamed_on, no_option, whole_number
from fedivon_app.datasets.cache import stamp
from fedivon_app.datasets.npz import REQUIRED, check_keys, checked_source

OFFERED = ("root", "path", "num_clients", "seed")  # what every reader may take besides its options
SETTINGS = {"path": "data.path", "num_clients": "data.clients"}  # where a person says these two
BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class OwnReader:
    """A user's own function that reads data, with its import path as its name."""

    name: str
    function: Callable[..., object]
    task: str = "classification"

    def __str__(self) -> str:
        return f"data source {self.name!r}"

    @property
    def options(self) -> set[str]:
        """Return the names of the options: those of the signature, and always `num_classes`."""
        named = {key for key, one in self._parameters().items() if one.kind in BY_KEYWORD}
        return named - set(OFFERED) | {"num_classes"}

    def arguments(self, offered: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the function is to be called with, or complain of what does not fit it."""
        unknown = sorted(key for key in options if key not in self.options and not self._takes(key))
        if unknown:
            raise no_option(str(self), unknown[0], self.options)
        if offered.get("path") is not None and not self._takes("path"):
            raise DataError(f"{self} takes no path: its function has no parameter of this name.")
        given = {key: value for key, value in offered.items() if self._takes(key)}
        given = {key: value for key, value in given.items() if value is not None} | dict(options)
        for key, parameter in self._parameters().items():
            needed = parameter.default is parameter.empty
            if needed and parameter.kind is parameter.POSITIONAL_ONLY:
                raise DataError(
                    f"{self} has the parameter {key!r} that cannot be given by name; "
                    "write its function without a / among the parameters."
                )
            if needed and parameter.kind in BY_KEYWORD and key not in given:
                setting = SETTINGS.get(key, f"data.options.{key}")
                raise DataError(f"{self} needs {key!r}, which is not given; set {setting}.")
        return given

    def stamp(self, arguments: Mapping[str, Any]) -> str:
        """Return a text that changes with the function's module and with the files it is given.

        Files are what `path` and options name; if `path` is a folder, all files below it.
        """
        code = _code_stamp(self.name.partition(":")[0], self.function)
        return f"{code} {stamp(_files(arguments))}"

    def __call__(self, **arguments: Any) -> Source:
        """Call the function and return what it read, checked; every fault is a DataError."""
        given = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in arguments.items()
            if self._takes(key)
        }
        with blamed_on(str(self)):
            returned = self.function(**given)
        return self._checked(returned, arguments.get("num_classes"))

    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        try:
            return inspect.signature(self.function).parameters
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{self} does not tell its parameters ({one_line(error)}); "
                "a function that is written in Python is needed."
            ) from error

    def _takes(self, key: str) -> bool:
        parameters = self._parameters()
        named = key in parameters and parameters[key].kind in BY_KEYWORD
        return named or any(one.kind is one.VAR_KEYWORD for one in parameters.values())

    def _checked(self, returned: object, num_classes: int | None) -> Source:
        if isinstance(returned, Source):
            values: Mapping[Any, Any] = returned.arrays
            if returned.num_classes:
                values = returned.arrays | {"num_classes": returned.num_classes}
            class_names = returned.class_names
        elif isinstance(returned, Mapping):
            values = returned
            class_names = None
        else:
            raise DataError(
                f"{self} returned a {type(returned).__name__}; a Source (of "
                f"fedivon_app.datasets.base) or a mapping with the arrays {', '.join(REQUIRED)} "
                "is needed."
            )
        known = (*FIELDS, "num_classes")
        if unknown := [key for key in values if key not in known]:
            raise DataError(
                f"{self} returned the key {unknown[0]!r}, which means nothing here: "
                f"{did_you_mean(unknown[0], known)}"
            )
        check_keys(str(self), [key for key in values if key in FIELDS])
        arrays = {key: self._array(key, values[key]) for key in FIELDS if key in values}
        if num_classes is None:
            num_classes = values.get("num_classes")
        if num_classes is not None:
            num_classes = whole_number(num_classes, f"{self}: num_classes", 1)
        source = checked_source(self.name, str(self), arrays, num_classes, task=self.task)
        return replace(source, class_names=class_names and tuple(class_names))

    def _array(self, key: str, value: object) -> np.ndarray:
        try:
            return np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{self}: {key} is no array of numbers ({one_line(error)}).") from error


def _files(arguments: Mapping[str, Any]) -> Iterator[str]:
    """The files that arguments name."""
    for key, value in sorted(arguments.items()):
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if key == "root" or not isinstance(item, (str, Path)):
                continue
            place = os.path.expanduser(item)
            if os.path.isfile(place):
                yield place
            elif key == "path":
                found = ((folder, name) for folder, _, names in os.walk(place) for name in names)
                yield from sorted(os.path.join(folder, name) for folder, name in found)


@lru_cache(maxsize=64)
def _code_stamp(module_name: str, function: Callable[..., object]) -> str:
    """The stamp of the files in which the function is named and written.

    It is taken once for a function, when it has just been imported: if the file is edited later,
    the function that this process has is still the old one, and so is its stamp.
    """
    written_in = getattr(inspect.unwrap(function), "__module__", None)
    names = [module_name, *([written_in] if isinstance(written_in, str) else [])]
    modules = [sys.modules[name] for name in dict.fromkeys(names) if name in sys.modules]
    return stamp(file for module in modules if (file := getattr(module, "__file__", None)))
