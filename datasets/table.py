"""The user's own table: a CSV, Parquet or Feather file with names for its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.datasets.base import Source, real_number
from fedivon_app.datasets.table_file import TableFile
from fedivon_app.datasets.table_format import TableFormat, format_of

STREAM = 0x7461626C  # which rows are for tests: of no seed, so that all seeds have the same
Categories = Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, eq=False)
class Owners:
    """The sites by name, in order, and the number of each row's."""

    names: tuple[str, ...]
    numbers: np.ndarray


def table(
    *,
    path: str | Path | None = None,
    task: str = "classification",
    label_column: str | None = None,
    client_column: str | None = None,
    split_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    drop_columns: Sequence[str] = (),
    categories: Categories = (),
    classes: Sequence[str] | None = None,
    test_share: float = 0.2,
    agreed: bool = False,
) -> Source:
    """Read and check a table.

    Inputs are as written, NaN where a value is missing: what they are standardised by comes from
    all clients together. A row is for tests where `split_column` says `test`; without such a column
    `test_share` of the rows of each client and class are, always the same ones. With `agreed` the
    format is that of the options alone, for others have tables too: this one may lack a class or
    the values of a column, and a column has categories only where they are listed.
    """
    if path is None:
        raise DataError("table: no file given; set data.path to a CSV, Parquet or Feather file.")
    file = TableFile(path)
    if label_column is None:
        names = ", ".join(file.names)
        raise DataError(
            f"{path}: which column is to be predicted? Set data.label_column to one of {names}."
        )
    roles = {"label": label_column, "client": client_column, "split": split_column}
    for role, name in roles.items():
        file.check([name] if name else [], f"data.{role}_column")
    file.check(drop_columns, "data.drop_columns")
    others = [name for name in (client_column, split_column, *drop_columns) if name]
    form = format_of(
        file,
        label_column,
        features=feature_columns,
        others=others,
        categories=dict(categories),
        classes=classes,
        regression=task == "regression",
        agreed=agreed,
    )
    x = form.inputs(file)
    y = form.targets(file) if task == "regression" else form.labels(file)
    owners = _owners(file, client_column)
    if split_column:
        test = _test_rows(file, split_column)
    else:
        test = _drawn_test_rows(y if form.classes else np.zeros(len(y)), owners, test_share)
    _check(file.path, form, x=x, y=y, test=test, owners=owners, whole=not agreed)
    return Source(
        name="table",
        x_train=x[~test],
        y_train=y[~test],
        x_test=x[test],
        y_test=y[test],
        num_classes=len(form.classes),
        class_names=form.classes or None,
        owner_train=owners.numbers[~test] if owners else None,
        owner_test=owners.numbers[test] if owners else None,
        client_names=owners.names if owners else None,
        table=form,
    )


def _owners(file: TableFile, column: str | None) -> Owners | None:
    if column is None:
        return None
    texts = file.texts(column)
    if missing := sum(text is None for text in texts):
        raise DataError(
            f"{file.path}: {missing} of {len(texts)} rows have no value in the column {column!r}, "
            "so that nobody knows whose they are."
        )
    names = sorted({str(text) for text in texts}, key=_by_number)
    numbers = {name: number for number, name in enumerate(names)}
    return Owners(tuple(names), np.array([numbers[str(text)] for text in texts], np.int64))


def _by_number(name: str) -> tuple[bool, float, str]:
    """Numbers come first, by size, and then all other names by the alphabet."""
    return (False, float(name), name) if name.isdecimal() else (True, 0.0, name)


def _test_rows(file: TableFile, column: str) -> np.ndarray:
    """Return which rows a column names as those for tests."""
    texts = [str(text).lower() for text in file.texts(column)]
    if wrong := sorted(set(texts) - {"train", "test"}):
        raise DataError(
            f"{file.path}: the column {column!r} holds {wrong[0]!r}; a split is train or test."
        )
    return np.array([text == "test" for text in texts])


def _drawn_test_rows(y: np.ndarray, owners: Owners | None, share: float) -> np.ndarray:
    """Return a share of the rows, spread evenly over the clients and their classes.

    The last row of a class is not taken.
    """
    real_number(share, "data.test_share", upto=0.9)
    luck = np.random.default_rng(STREAM).random(len(y))
    owner = np.zeros(len(y)) if owners is None else owners.numbers
    order = np.lexsort((luck, y, owner))
    places = np.arange(len(y))
    taken = np.floor((places + 1) * share) > np.floor(places * share)
    test = np.zeros(len(y), bool)
    test[order] = taken
    for label in np.unique(y):
        if test[y == label].all():
            test[y == label] = False
    return test


def _check(
    path: Path,
    form: TableFormat,
    *,
    x: np.ndarray,
    y: np.ndarray,
    test: np.ndarray,
    owners: Owners | None,
    whole: bool,
) -> None:
    """Complain of parts that are empty, and of columns from which nothing can be learned.

    Where this is not the `whole` of the data, others may have what it lacks.
    """
    owner = np.zeros(len(y)) if owners is None else owners.numbers
    for part, rows in (("train", ~test), ("test", test)):
        if not rows.any():
            raise DataError(f"{path}: none of its {len(test)} rows is left to {part} with.")
    for number, name in enumerate(owners.names if owners else ()):
        own = owner == number
        if not (own & ~test).any():
            raise DataError(
                f"{path}: the client {name!r} has no row to train with; its {int(own.sum())} are "
                "for tests."
            )
    for number, name in enumerate(form.classes):
        if whole and not (y[~test] == number).any():
            found = "among the rows for tests only" if (y == number).any() else "in no row"
            raise DataError(
                f"{path}: the class {name!r} occurs {found}, and could never be learned."
            )
    for place, column in enumerate(form.features):
        values = x[~test, place]
        known = values[~np.isnan(values)]
        if not (form.is_number[place] and whole):
            continue
        if not len(known):
            raise DataError(
                f"{path}: the column {column!r} has no value in any row to train with; leave it "
                "out (data.drop_columns)."
            )
        if (known == known[0]).all():
            raise DataError(
                f"{path}: the column {column!r} has one value, {known[0]:g}, in all rows to train "
                "with, from which nothing is learned; leave it out (data.drop_columns)."
            )
