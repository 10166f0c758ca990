"""Tables in files, as columns with names: CSV, Parquet and Feather, by pyarrow.

Arrow is the format's own library for Parquet and Feather, infers the types of a CSV file with its
dates, and works in processes that were forked, as those of nodes are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.core.text import did_you_mean, one_line

if TYPE_CHECKING:
    import pyarrow

CSV = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
FEATHER = (".feather", ".arrow")
SUFFIXES = (*CSV, *PARQUET, *FEATHER)
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "?")  # in a CSV file
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?")


def is_table(path: str | Path) -> bool:
    """Tell whether a file's name is that of a table."""
    return Path(path).suffix.lower() in SUFFIXES


class TableFile:
    """The columns of a file by name, as numpy arrays: numbers, or texts with None where missing."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._table = _read(self.path)
        names = self._table.column_names
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise DataError(f"{path}: two columns have the name {doubled[0]!r}.")
        if not len(self):
            raise DataError(f"{path}: it has no row.")

    def __len__(self) -> int:
        rows: int = self._table.num_rows
        return rows

    @property
    def names(self) -> list[str]:
        """Return the names of all columns."""
        return list(self._table.column_names)

    def check(self, names: Iterable[str], setting: str) -> None:
        """Complain of a name that is no column's; `setting` is where it was given."""
        for name in names:
            if name not in self.names:
                raise DataError(
                    f"{self.path}: {setting} names the column {name!r}, which the file does not "
                    f"have: {did_you_mean(name, self.names)}"
                )

    def is_number(self, name: str) -> bool:
        """Tell whether a column holds numbers; one of dates is refused."""
        import pyarrow.types as types

        kind = self._table.column(name).type
        if types.is_temporal(kind) or self._looks_like_dates(name):
            raise DataError(
                f"{self.path}: the column {name!r} holds dates, which a network cannot take: write "
                "what matters of them as numbers, such as an age in years or the days since "
                "admission, or leave the column out (data.drop_columns)."
            )
        if types.is_binary(kind) and self.path.suffix.lower() in CSV:
            raise DataError(
                f"{self.path}: the column {name!r} holds texts that are not UTF-8: save the file "
                "with the encoding UTF-8."
            )
        if types.is_nested(kind) or types.is_binary(kind):
            raise DataError(f"{self.path}: the column {name!r} holds {kind}, not numbers or texts.")
        numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        return bool(numeric or types.is_boolean(kind) or types.is_null(kind))

    def _looks_like_dates(self, name: str) -> bool:
        """Tell whether the texts of a column are dates in a form that Arrow does not know."""
        import pyarrow.types as types

        if not types.is_string(self._table.column(name).type):
            return False
        texts = [text for text in self.texts(name) if text is not None]
        return bool(texts) and all(DATE.fullmatch(text) for text in texts[:100])

    def numbers(self, name: str) -> np.ndarray:
        """Return a column of numbers as float64, with NaN where one is missing."""
        import pyarrow

        column = self._table.column(name).cast(pyarrow.float64())
        values = column.to_numpy(zero_copy_only=False).astype(np.float64)
        if np.isinf(values).any():
            raise DataError(f"{self.path}: the column {name!r} holds infinity.")
        return np.asarray(values)

    def texts(self, name: str) -> list[str | None]:
        """Return a column as texts, None where one is missing; whole numbers have no point."""
        values = self._table.column(name).to_pylist()
        return [None if value is None else as_text(value) for value in values]

    def write_rows(self, kept: Sequence[bool], path: str | Path) -> None:
        """Write some of the rows to a CSV file."""
        from pyarrow import csv

        csv.write_csv(self._table.filter(list(kept)), path)


def as_text(value: Any) -> str:
    """Return a value as the text by which a class, a category or a site is known."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _read(path: Path) -> pyarrow.Table:
    import pyarrow
    from pyarrow import csv, feather, parquet

    suffix = path.suffix.lower()
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    try:
        if suffix in PARQUET:
            table = parquet.read_table(path, use_threads=False)
        elif suffix in FEATHER:
            table = feather.read_table(path, use_threads=False)
        elif suffix in CSV:
            table = csv.read_csv(
                path,
                read_options=csv.ReadOptions(use_threads=False),
                parse_options=csv.ParseOptions(delimiter=_delimiter(path)),
                convert_options=csv.ConvertOptions(
                    null_values=list(MISSING), strings_can_be_null=True
                ),
            )
        else:
            raise DataError(
                f"{path}: a table is a file of one of these kinds: {', '.join(SUFFIXES)}."
            )
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable table ({one_line(error)}).") from error
    return table.rename_columns([name.strip() for name in table.column_names])


def _delimiter(path: Path) -> str:
    """Return what stands between the columns: whatever the first line has most of."""
    with open(path, encoding="utf-8", errors="replace") as file:
        header = file.readline()
    return max(",;\t", key=header.count)
