"""What the columns of a table mean: which of them a model takes, and what it tells of a row.

Everybody who reads a table of one federation reads it in one format, so that a row of numbers means
the same everywhere. It is kept with the model, and a table to predict on is read by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from fedivon_app.core.errors import DataError
from fedivon_app.core.text import did_you_mean
from fedivon_app.datasets.table_file import TableFile

MOST_CATEGORIES = 50  # of a column, unless they are listed: more look like names or numbers


class Column(BaseModel):
    """A column that the model takes: of numbers or, where it has categories, of texts."""

    model_config = ConfigDict(frozen=True)

    name: str
    categories: tuple[str, ...] | None = None

    @property
    def features(self) -> list[str]:
        """Return the names of the features that the column becomes."""
        if self.categories is None:
            return [self.name]
        return [f"{self.name}={category}" for category in self.categories]


class TableFormat(BaseModel):
    """The columns that a model takes, and the one that it is to tell.

    `classes` are the names of the labels; a number that is to be told has none.
    """

    model_config = ConfigDict(frozen=True)

    columns: tuple[Column, ...]
    label: str
    classes: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        """Return the names of all features, in their order."""
        return [name for column in self.columns for name in column.features]

    @property
    def is_number(self) -> np.ndarray:
        """Tell of each feature whether it is a number, which is standardised."""
        kinds = [column.categories is None for column in self.columns for _ in column.features]
        return np.array(kinds, bool)

    def inputs(self, file: TableFile) -> np.ndarray:
        """Return the rows of a table as float32, NaN where a value is missing.

        A column of texts becomes a feature for each of its categories, which is 1 where a row has
        it; a text that is none of them is 0 in all.
        """
        file.check([column.name for column in self.columns], "the model's format")
        features: list[np.ndarray] = []
        for column in self.columns:
            if column.categories is None:
                if not file.is_number(column.name):
                    raise DataError(
                        f"{file.path}: the column {column.name!r} should hold numbers, and has "
                        f"{_example(file, column.name)!r}; if these are categories, list them in "
                        f"data.categories.{column.name}."
                    )
                features.append(file.numbers(column.name))
                continue
            texts = np.array(file.texts(column.name), object)
            missing = np.array([text is None for text in texts])
            for category in column.categories:
                features.append(np.where(missing, np.nan, texts == category))
        with np.errstate(over="ignore"):
            rows = np.stack(features, axis=1).astype(np.float32)
        if np.isinf(rows).any():
            name = self.features[int(np.isinf(rows).any(axis=0).argmax())]
            raise DataError(f"{file.path}: the column {name!r} holds numbers beyond float32.")
        return rows

    def labels(self, file: TableFile) -> np.ndarray:
        """Return the number of each row's class, int64."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        texts = _complete(file, self.label)
        if unknown := sorted({text for text in texts if text not in numbers}):
            raise DataError(
                f"{file.path}: the column {self.label!r} holds {unknown[0]!r}, which is none of "
                f"the classes {', '.join(self.classes)} (data.classes)."
            )
        return np.array([numbers[text] for text in texts], np.int64)

    def targets(self, file: TableFile) -> np.ndarray:
        """Return the number that is to be told of each row, float32."""
        _complete(file, self.label)
        if not file.is_number(self.label):
            raise DataError(
                f"{file.path}: the column {self.label!r} holds {_example(file, self.label)!r}; "
                "task=regression predicts numbers."
            )
        return file.numbers(self.label).astype(np.float32)


def format_of(
    file: TableFile,
    label: str,
    *,
    features: Sequence[str] | None,
    others: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    classes: Sequence[str] | None,
    regression: bool = False,
    agreed: bool = False,
) -> TableFormat:
    """Return the format of a file, from its columns and from what the settings say of them.

    Without `features` all columns are taken but the label and `others`. With `agreed` the settings
    say everything.
    """
    if agreed:
        return agreed_format(label, features, categories, classes, regression)
    file.check(categories, "data.categories")
    names = features or [name for name in file.names if name not in (label, *others)]
    if not names:
        raise DataError(f"{file.path}: no column is left to learn from.")
    if wrong := [name for name in names if name in (label, *others)]:
        raise DataError(
            f"{file.path}: the column {wrong[0]!r} cannot be a feature, for it is the label, the "
            "client, the split or left out."
        )
    file.check(names, "data.feature_columns")
    columns = tuple(_column(file, name, categories.get(name)) for name in names)
    if regression:
        return TableFormat(columns=columns, label=label)
    held = tuple(classes) if classes else _classes(file, label)
    if len(held) < 2:
        raise DataError(
            f"{file.path}: the column {label!r} holds one class, {held[0]!r}; two are needed."
        )
    return TableFormat(columns=columns, label=label, classes=held)


def agreed_format(
    label: str,
    features: Sequence[str] | None,
    categories: Mapping[str, Sequence[str]],
    classes: Sequence[str] | None,
    regression: bool,
) -> TableFormat:
    """Return the format that the settings say, for tables of which nobody sees all."""
    lacking = [] if features else ["data.feature_columns"]
    lacking += [] if classes or regression else ["data.classes"]
    if lacking or not features:
        raise DataError(
            f"every site has a table of its own, so that the settings must say what is in them: "
            f"set {' and '.join(lacking)} (and data.categories of columns that hold texts)."
        )
    if unknown := [name for name in categories if name not in features]:
        raise DataError(
            f"data.categories names the column {unknown[0]!r}, which is none of "
            f"data.feature_columns: {did_you_mean(unknown[0], features)}"
        )
    columns = []
    for name in features:
        listed = categories.get(name)
        columns.append(Column(name=name, categories=None if listed is None else tuple(listed)))
    held = () if regression else tuple(classes or ())
    return TableFormat(columns=tuple(columns), label=label, classes=held)


def _column(file: TableFile, name: str, categories: Sequence[str] | None) -> Column:
    if categories is not None:
        return Column(name=name, categories=tuple(categories))
    if file.is_number(name):
        return Column(name=name)
    held = sorted({text for text in file.texts(name) if text is not None})
    if len(held) > MOST_CATEGORIES:
        raise DataError(
            f"{file.path}: the column {name!r} holds {len(held)} different texts, such as "
            f"{held[0]!r}; if it names rows, leave it out (data.drop_columns), and if they are "
            f"categories, list those that count (data.categories.{name})."
        )
    return Column(name=name, categories=tuple(held))


def _classes(file: TableFile, label: str) -> tuple[str, ...]:
    """The names of the classes in their order: numbers by size, texts by the alphabet."""
    texts = set(_complete(file, label))
    if not file.is_number(label):
        return tuple(sorted(texts))
    values = file.numbers(label)
    if (broken := values[values != np.round(values)]).size:
        raise DataError(
            f"{file.path}: the column {label!r} holds numbers that are no classes, such as "
            f"{broken[0]:g}; task=regression predicts numbers."
        )
    if len(texts) > MOST_CATEGORIES:
        raise DataError(
            f"{file.path}: the column {label!r} holds {len(texts)} different numbers; "
            "task=regression predicts numbers, and data.classes lists so many classes."
        )
    return tuple(sorted(texts) if texts <= {"false", "true"} else sorted(texts, key=float))


def _complete(file: TableFile, name: str) -> list[str]:
    """The texts of a column in which none may be missing."""
    texts = file.texts(name)
    known = [text for text in texts if text is not None]
    if missing := len(texts) - len(known):
        raise DataError(
            f"{file.path}: {missing} of {len(texts)} rows have no value in the column {name!r}; "
            "leave these rows out of the file."
        )
    return known


def _example(file: TableFile, name: str) -> str:
    return next((text for text in file.texts(name) if text is not None), "nothing")
